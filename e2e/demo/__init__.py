"""`make demo`: one object to a real completion on an embedded cluster, told step by step."""
