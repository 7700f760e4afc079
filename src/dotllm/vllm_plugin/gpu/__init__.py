"""Masks that live on the GPU, and a GPU that follows the grammars.

Per step vLLM fills a bitmask of 16 KB for every constrained position, sends it to the workers and copies it to the
device. Our masks are rows of one table (see `dotllm.index.token_space`), so here only row numbers travel, and each row
once, when it is first needed:

 * `rows` (engine core): which row each position needs, in one call of the engine for the whole batch; what to send.
 * `message`: what travels in place of the bitmask.
 * `mask_table` (worker): the table on the device, and the application of its rows to the logits (`logits_rows` says
   whose is whose); `upload`, `host_numbers` and `host_memory`: how what travels gets there.
 * `kernels`: the Triton kernels.
 * `manager_hook`, `worker_hooks`: where both sides take hold of vLLM.

Where scheduling is asynchronous the device also finds its way through the grammar by itself:

 * `walk` (engine core), with `entry` (a table), `follow` (its own steps), `prefetch` (filling tables ahead) and
   `walk_message` (what travels); `walker`, `board` (who stands where) and `walk_kernels` (worker).
 * `walk_scheduler`, `sampling`: where it takes hold of vLLM's scheduler and model runner.
 * `late_place`: requests whose grammar is not there yet.
 * `jump_forward`, `pace`: forced text that is entered, not generated, and whether that pays.
 * `launch`: how kernels are launched.
"""
