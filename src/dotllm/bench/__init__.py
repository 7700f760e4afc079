"""``dotllm bench-structured``: measures the cost of structured output on a server, against its own unconstrained twin.

    workloads   constraints: sets of schemas, regexes, choices, each with a validator of its answers
    client      one streaming request to any OpenAI-compatible server, or many with a fixed number in flight
    offline     the same for an engine in this process (``--offline``)
    plan        the measurements: throughput with twins or in short pairs, time to first token
    metrics     samples → figures
    servers     starts and stops the servers that are compared (variants.json)
    report      JSON, tables, plots (PNG) and a page (HTML)

Only `offline` needs vLLM.
"""
