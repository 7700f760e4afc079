"""The standard values of ``format``, each as the regular language that its RFC defines.

JSON Schema Validation 2020-12 §7.3 lists them; a name means the same in all drafts that have it. Other names are
Pydantic's and OpenAPI's, if a reference defines their strings. Names without a grammar (password, and all unknown
names) are annotations, which `ineffective_keywords` reports. What is not regular in a standard is named where its
format is.
"""
