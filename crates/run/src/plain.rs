//! A machine for the tests of this crate, built from a description.

use std::sync::Arc;

use description::{
    Clock, Description, Error, Refusal, builtin,
    settings::{self, Written},
};
use hardware::walker::Walkers;
use os::host::Host;
use results::MachineSummary;

use crate::{
    run::{Parts, Run},
    runnable::Runnable,
};

/// A machine that is built only from its description.
pub(crate) struct Machine {
    description: Description,
    written: Arc<Written>,
}

impl Machine {
    pub(crate) fn load(name: &str, settings: &[String]) -> Result<Machine, Error> {
        let (_, text, origin) = builtin::find(name)?;
        Machine::parse(&text, &origin, settings)
    }

    pub(crate) fn parse(text: &str, origin: &str, settings: &[String]) -> Result<Machine, Error> {
        let description = settings::apply(text, origin, settings)?.description;
        let written = Written {
            text: text.to_owned(),
            origin: origin.to_owned(),
            settings: settings.to_vec(),
        };
        Ok(Machine { description, written: Arc::new(written) })
    }
}

impl Runnable for Machine {
    fn description(&self) -> &Description {
        &self.description
    }

    fn summary(&self) -> MachineSummary {
        MachineSummary {
            name: "plain".to_owned(),
            title: String::new(),
            source: String::new(),
            digest: String::new(),
            settings: Vec::new(),
            description: serde_json::Value::Null,
        }
    }

    fn start(&self, check: bool, clock: Clock) -> Result<Run, Error> {
        let refused = |Refusal { key, what }| self.written.locate(&key, &what);
        let stack = managers::host::stack(&self.description).map_err(refused)?;
        let (system, changes) =
            managers::system(&self.description, &stack.guest).map_err(refused)?;
        let parts = Parts { written: self.written.clone(), stack, system, changes };
        Run::new(&self.description, parts, check, clock)
    }

    fn walkers(&self) -> Result<Walkers, Error> {
        let stack = managers::host::stack(&self.description)
            .map_err(|Refusal { key, what }| self.written.locate(&key, &what))?;
        let (tree, host) = (stack.guest.tree_shape(), stack.host().map(Host::table));
        Walkers::build(&self.description, stack.guest.page_sizes(), tree, host)
            .map_err(|Refusal { key, what }| self.written.locate(&key, &what))
    }
}
