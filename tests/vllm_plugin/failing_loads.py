"""A KV connector that claims to have blocks of most prompts, and whose loads fail now and then."""

from __future__ import annotations

from random import Random
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorMetadata


class FailingLoads(KVConnectorBase_V1):
    """The scheduler's side of the connector."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.random = Random(0)
        self.loaded: set[int] = set()
        """blocks that the next step loads"""

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        size = self._vllm_config.cache_config.block_size
        blocks = (request.num_prompt_tokens - 1) // size - num_computed_tokens // size
        return (self.random.randint(0, max(0, blocks)) * size, False)

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        if num_external_tokens:
            self.loaded.update(blocks.get_block_ids()[0])

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        return KVConnectorMetadata()

    def failed(self) -> set[int]:
        """The blocks whose load failed; called once for each step."""
        loaded, self.loaded = self.loaded, set()
        return loaded if self.random.random() < 0.5 else set()

    def start_load_kv(self, *_: Any, **__: Any) -> None: ...
    def wait_for_layer_load(self, *_: Any) -> None: ...
    def save_kv_layer(self, *_: Any, **__: Any) -> None: ...
    def wait_for_save(self) -> None: ...
