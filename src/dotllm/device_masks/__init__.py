"""A table of mask rows on a device: what is sent to it, and the kernel that masks logits with its rows."""
