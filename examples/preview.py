"""What dotllm would refuse of a server's traffic: ``OPENAI_BASE_URL=http://localhost:8000/v1 python …``.

Start the server with ``--dotllm-preview``: vLLM's own backend answers, and dotllm counts. Let your clients use it for a
day; then this program prints the counts, and ends with status 1 if dotllm would have refused a request. The server's
log has a line for each such request.
"""

from __future__ import annotations

import os
import sys
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

if __name__ == "__main__":
    url = os.environ["OPENAI_BASE_URL"].removesuffix("/v1")
    with urllib.request.urlopen(f"{url}/metrics") as response:
        families = text_string_to_metric_families(response.read().decode())
        samples = [sample for family in families for sample in family.samples]
    counts = [sample for sample in samples if sample.name == "dotllm_preview_requests_total"]
    if not counts:
        print("Nothing was counted. Does the server run with --dotllm-preview, and has it been asked?")
    for sample in counts:
        print(f"{sample.value:8.0f} {sample.labels['outcome']} {sample.labels['code']}")
    refused = sum(sample.value for sample in counts if sample.labels["outcome"] == "refused")
    if refused:
        every = sum(sample.value for sample in counts)
        print(f"{refused:.0f} of {every:.0f} would be refused. docs/errors.md says what to write instead.")
        sys.exit(1)
