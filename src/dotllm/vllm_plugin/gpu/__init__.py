"""Masks that live on the GPU.

Per step vLLM fills a bitmask of 16 KB for every constrained position, sends it to the workers and copies it to the
device. Our masks are rows of one table (see `dotllm.index.token_space`), so here only row numbers travel, and each row
once, when it is first needed:

 * `rows` (engine core): which row each position needs, in one call of the engine for the whole batch; what to send.
 * `message`: what travels in place of the bitmask.
 * `mask_table` (worker): the table on the device, and the application of its rows to the logits.
 * `kernels`: the Triton kernels.
 * `manager_hook`, `worker_hooks`: where both sides take hold of vLLM.
"""
