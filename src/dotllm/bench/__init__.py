"""``dotllm bench-structured``: measures the cost of structured output on a server, against its own unconstrained twin.

    workloads   constraints: sets of schemas, regexes, choices, each with a validator of its answers
    client      one streaming request to any OpenAI-compatible server; many, with a fixed number in flight
    offline     the same to an engine in this process (``--offline``)
    plan        the measurements: throughput with twins or in short pairs, time to first token
    metrics     samples → figures
    servers     the servers that are compared (variants.json): starting and stopping them
    report      JSON, tables, plots: PNG and HTML

All but `offline` stays free of vLLM.
"""
