"""``dotllm bench-quality``: measures whether answers are right, with a constraint and without.

cases        a question, the functions or the schema of its answer, and a judge of answers
bfcl         cases of the Berkeley Function Calling Leaderboard, and its own judge
extractions  cases of our own, made by rule: contracts, invoices, addresses, dates, tickets, nested lists
asking       how each case is asked: free, with the schema in the prompt, under a constraint, as a tool call; sends
             them to a server
figures      counts, paired bootstrap intervals, tables
"""
