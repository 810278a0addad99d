//! The kernel model whose accesses are added to a recording, and its footprint.

use std::fmt;
use std::str::FromStr;

use super::path::{Linux, PAGE};
use crate::Error;
use crate::units::with_unit;

/// The largest number of cycles or instructions of a part of a call. The next constant is the
/// largest number of pages that a part touches.
const CYCLES_MAX: u64 = 60_000;
const PAGES_MAX: u64 = 200;

/// A kernel, as written in `microkernel,work=600`: its name, then the parameters that differ from the
/// defaults.
///
/// * `monolithic`: Linux is the kernel. A call or a switch enters it.
/// * `microkernel`: Linux is a process behind a microkernel, reached by messages (U02 section 3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kernel {
    /// Whether Linux is a separate process.
    pub is_microkernel: bool,
    /// `trap`: the cycles of entering and leaving the kernel by an interrupt, which is how programs
    /// call Linux. Default 1200: the time of a native `getpid` (U02 table 2) without its 300
    /// instructions.
    pub trap: u64,
    /// `work`: the instructions of a call, or of a switch between programs. Default 1500: together
    /// with `code` and `data`, this gives the time of a native `read` of 4 KB (U02 table 2).
    pub work: u64,
    /// `code`: the number of pages of Linux's code that a call touches. Default 6, an assumption.
    pub code: u64,
    /// `data`: the number of pages of Linux's data that a call touches. Default 8, an assumption.
    pub data: u64,
    /// `ipc`: the instructions that the microkernel executes for a message. Default 266: 100 cycles
    /// for the path of the message and 166 for entering and leaving (U02 section 3.2).
    pub ipc: u64,
}

impl Kernel {
    /// The names of both kernels.
    pub const NAMES: [&str; 2] = ["monolithic", "microkernel"];

    /// The kernel called `name` with its default footprint.
    fn named(name: &str) -> Option<Kernel> {
        let is_microkernel = Kernel::NAMES.iter().position(|known| *known == name)? == 1;
        Some(Kernel { is_microkernel, trap: 1200, work: 1500, code: 6, data: 8, ipc: 266 })
    }

    /// The name of the kernel model.
    pub const fn name(&self) -> &'static str {
        Kernel::NAMES[self.is_microkernel as usize]
    }

    /// The parameters of the kernel model by name, with the smallest and the largest value.
    fn fields(&mut self) -> Vec<(&'static str, &mut u64, u64, u64)> {
        let mut fields = vec![
            ("trap", &mut self.trap, 0, CYCLES_MAX),
            ("work", &mut self.work, 1, CYCLES_MAX),
            ("code", &mut self.code, 1, PAGES_MAX),
            ("data", &mut self.data, 0, PAGES_MAX),
        ];
        if self.is_microkernel {
            fields.push(("ipc", &mut self.ipc, 1, CYCLES_MAX));
        }
        fields
    }

    fn set(&mut self, part: &str) -> Result<(), String> {
        let Some((name, text)) = part.split_once('=') else {
            return Err(format!("`{part}` is not a setting; write NAME=VALUE"));
        };
        let mut fields = self.fields();
        let names: Vec<&str> = fields.iter().map(|(name, ..)| *name).collect();
        let Some((_, field, least, most)) = fields.iter_mut().find(|field| field.0 == name) else {
            return Err(format!("no parameter `{name}`; the parameters are {}", names.join(", ")));
        };
        let value = with_unit(text, &["", "k"], 1000);
        let value = value.filter(|value| (*least..=*most).contains(value));
        **field =
            value.ok_or_else(|| format!("{name}={text}: write a number from {least} to {most}"))?;
        Ok(())
    }

    /// The parameters of a call of Linux, without the bytes that it copies, which differ from call
    /// to call.
    pub(super) fn linux(self) -> Linux {
        let Kernel { is_microkernel, trap, work, code, data, ipc } = self;
        Linux { is_server: is_microkernel, trap, work, code, data, copied: 0, ipc }
    }

    /// The note about this kernel for results.
    pub(super) fn note(self) -> String {
        let Kernel { trap, work, code, data, .. } = self;
        let way = if self.is_microkernel {
            format!(
                "a Linux at user level behind a microkernel, {} instructions for each message",
                self.ipc
            )
        } else {
            "a Linux in the kernel".to_owned()
        };
        format!(
            "the kernel's accesses are modelled, not recorded ({way}): for each call and switch \
             {trap} cycles to enter and leave, {work} instructions, {code} pages of code and \
             {data} of data of {PAGE} bytes, and the buffers that calls name"
        )
    }
}

impl FromStr for Kernel {
    type Err = Error;

    fn from_str(text: &str) -> Result<Kernel, Error> {
        let refuse = |what: String| Error::Parameters(format!("--kernel {text}: {what}"));
        let mut parts = text.split(',');
        let name = parts.next().unwrap_or_default();
        let mut kernel = Kernel::named(name).ok_or_else(|| {
            refuse(format!("no kernel `{name}`; choose one of {}", Kernel::NAMES.join(", ")))
        })?;
        parts.try_for_each(|part| kernel.set(part)).map_err(refuse)?;
        Ok(kernel)
    }
}

impl fmt::Display for Kernel {
    /// Writes all parameters, so that parsing the text gives the same ones.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        self.clone()
            .fields()
            .into_iter()
            .try_for_each(|(name, value, ..)| write!(f, ",{name}={value}"))
    }
}
