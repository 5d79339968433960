"""The stages of the pipeline: each reads files, calls the library, and writes files. One module per stage."""
