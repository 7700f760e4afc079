"""Reports errors of a request as its API reports errors, before the answer begins."""
