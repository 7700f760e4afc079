"""``dotllm bench-structured``: measures the cost of structured output on a server, against its own unconstrained twin.

    workloads   constraints: sets of schemas, regexes, choices, each with a validator of its answers
    client      one streaming request to any OpenAI-compatible server
    offline     the same to an engine in this process (``--offline``)
    load        a closed loop of requests, with a fixed number in flight
    pairs       short bursts and their twins, for machines whose pace drifts
    plan        the measurements: throughput with twins, time to first token
    metrics     samples → figures
    servers     starting and stopping the servers that are compared
    variants    which servers: engines, and dotllm with one optimisation off (variants.json)
    report      JSON, tables; plots: PNG and HTML

All but `offline` stays free of vLLM.
"""
