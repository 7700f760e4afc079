"""Why a document does not fit its schema, and refusals as people and programs read them.

It imports nothing: a front end of a server needs the fields of an error, and no kernels.
"""
