"""Reports what is wrong with a request in its API's own form, before the answer begins."""
