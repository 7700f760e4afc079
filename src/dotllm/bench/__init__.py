"""``dotllm bench-structured``: what structured output costs on a server, against its own unconstrained twin.

    workloads   constraints: sets of schemas, regexes, choices, each with a validator of its answers
    client      one streaming request to any OpenAI-compatible server
    offline     the same to an engine in this process (``--offline``)
    load        a closed loop of requests, so many at a time
    pairs       bursts and their twins, again and again, for machines whose pace drifts
    plan        the measurements: throughput with twins, time to first token
    metrics     samples → figures
    servers     starting and stopping the servers that are compared
    variants    which servers: engines, and dotllm with one optimisation off (variants.json)
    report      JSON, tables; plots: PNG and HTML

All but `offline` stays free of vLLM.
"""
