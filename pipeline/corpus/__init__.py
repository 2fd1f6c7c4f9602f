"""What is done once for a corpus: a params.yaml for its size, the checksums of its manifest.

May import: workflow
"""
