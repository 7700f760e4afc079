"""What is wrong with a request is said in its API's own way, before the answer begins."""
