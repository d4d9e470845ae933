"""Triton kernels.  One convention for all of them.

Shapes and strides (elements; the last axis is always contiguous):

* `Q`, `O`      [B, Hq, D], query head hq = h * G + g, h a KV head, G <= 8, D 64 or 128
* `K`, `V`      [slots, Hkv, D] of one layer, one slot space for HOT and COLD
* `TABLE`       [B, >= length] int32: the slot of each position of a request, HOT ones included
* `PO`, `PL`    [rows, Hkv, D] and f32 [rows, Hkv]: partial outputs, normalised, and their LSE
* `PARTS`       [B, parts] int32: row of a request's j-th partial for g = 0; g follows below it
* LSE is to base 2, of scores scaled by log2(e)/sqrt(D); -inf marks a partial without any key,
  whose output row is never read

Element types: bf16 or fp16 (f32 under the interpreter), accumulation in f32.
"""
