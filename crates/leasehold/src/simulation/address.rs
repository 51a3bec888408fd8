//! What a client dials for a member. A name in DNS, a proxy or a balancer leads each new connection to
//! some server; a connection that is open stays with the server that it has.

use std::sync::{Arc, Mutex, PoisonError};

use super::site::Site;
use super::world::World;
use crate::node::NodeId;

#[derive(Debug)]
pub(super) struct Address {
    pub(super) name: NodeId,
    pub(super) world: Arc<World>,
    leads_to: Mutex<Vec<Arc<Site>>>,
}

impl Address {
    /// An address that leads to `site` and is called like it.
    pub(super) fn of(site: &Arc<Site>) -> Arc<Self> {
        Self::named(site.name.clone(), site)
    }

    pub(super) fn named(name: NodeId, site: &Arc<Site>) -> Arc<Self> {
        let leads_to = Mutex::new(vec![site.clone()]);
        Arc::new(Self { name, world: site.world.clone(), leads_to })
    }

    /// New connections go to these servers in turn; to none of them, if there are none.
    pub(super) fn lead_to(&self, sites: &[&Arc<Site>]) {
        let names: Vec<_> = sites.iter().map(|site| site.name.as_str()).collect();
        self.world.note(format_args!("{} leads to {names:?}", self.name));
        *self.leads_to.lock().unwrap_or_else(PoisonError::into_inner) =
            sites.iter().copied().cloned().collect();
    }

    /// The server that the next connection goes to.
    pub(super) fn next(&self) -> Option<Arc<Site>> {
        let mut sites = self.leads_to.lock().unwrap_or_else(PoisonError::into_inner);
        let site = sites.first().cloned()?;
        sites.rotate_left(1);
        Some(site)
    }
}
