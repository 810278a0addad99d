//! A page table alone: applies operations and returns their effects on memory.

use addr::Rights;
use machine::Work;
use pyo3::prelude::*;

use crate::{
    error::{failed, refused},
    machines::Machine,
};

/// A machine's page table, outside a run; see `machine::PageTableBench`.
#[pyclass(unsendable, module = "pagewalk._native")]
pub(crate) struct PageTable {
    bench: machine::PageTableBench,
}

#[pymethods]
impl PageTable {
    #[new]
    fn new(machine: &Machine, metered: bool) -> PyResult<PageTable> {
        let bench = machine::PageTableBench::new(machine.machine(), metered).map_err(refused)?;
        Ok(PageTable { bench })
    }

    fn create(&mut self) -> PyResult<(usize, String)> {
        let (space, work) = self.bench.create().map_err(failed)?;
        Ok((space, json(work)?))
    }

    fn destroy(&mut self, space: usize) -> PyResult<String> {
        json(self.bench.destroy(space).map_err(failed)?)
    }

    fn map(&mut self, space: usize, addresses: Vec<u64>) -> PyResult<String> {
        json(self.bench.map(space, &addresses).map_err(failed)?)
    }

    fn hand(
        &mut self,
        spaces: (usize, usize),
        addresses: Vec<u64>,
        rights: u8,
    ) -> PyResult<String> {
        let rights = Rights::from_bits(rights);
        json(self.bench.hand(spaces, &addresses, rights).map_err(failed)?)
    }

    fn restrict(&mut self, space: usize, ranges: Vec<(u64, u64)>, rights: u8) -> PyResult<String> {
        let rights = Rights::from_bits(rights);
        json(self.bench.restrict(space, &ranges, rights).map_err(failed)?)
    }

    fn unmap(&mut self, space: usize, ranges: Vec<(u64, u64)>) -> PyResult<String> {
        json(self.bench.unmap(space, &ranges).map_err(failed)?)
    }

    fn protect(&mut self, space: usize, ranges: Vec<(u64, u64)>, rights: u8) -> PyResult<String> {
        let rights = Rights::from_bits(rights);
        json(self.bench.protect(space, &ranges, rights).map_err(failed)?)
    }

    fn walk(&mut self, space: usize, addresses: Vec<u64>) -> PyResult<String> {
        json(self.bench.walk(space, &addresses).map_err(failed)?)
    }

    /// The bytes of tables in use, and the bytes of frames allocated for them.
    fn footprint(&self) -> (u64, u64) {
        let footprint = self.bench.footprint();
        (footprint.table_bytes, footprint.frame_bytes)
    }
}

fn json(work: Work) -> PyResult<String> {
    serde_json::to_string(&work).map_err(failed)
}
