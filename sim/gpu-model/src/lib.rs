//! A modelled GPU for AMD's ROCr (HSA_MODEL_LIB) with a log of what it consumed.
