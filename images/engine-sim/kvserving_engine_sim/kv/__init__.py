"""The KV cache: layout, paged memory, and the function that fills it and answers from it."""
