use pyo3::prelude::*;

#[pyclass(frozen, get_all, module = "headgate._core")]
pub struct Cut {
    index: u64,
    size_bytes: u64,
    byte_offset: u64,
}

impl From<headgate_core::Cut> for Cut {
    fn from(cut: headgate_core::Cut) -> Self {
        Self { index: cut.index, size_bytes: cut.size_bytes, byte_offset: cut.byte_offset }
    }
}

#[pymethods]
impl Cut {
    fn __repr__(&self) -> String {
        let Self { index, size_bytes, byte_offset } = self;
        format!("Cut(index={index}, size_bytes={size_bytes}, byte_offset={byte_offset})")
    }
}
