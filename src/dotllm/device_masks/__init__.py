"""A table of mask rows on a device: the messages sent to it, and the kernel that masks logits with its rows."""
