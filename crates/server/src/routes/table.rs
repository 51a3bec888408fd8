//! The rows of the dashboard's table that a search, a sort or a page asks for.

use serde::Deserialize;

use super::ok;
use crate::ask::Ask;
use crate::body::Response;
use crate::observer;
use crate::problem::Problem;
use crate::table::{Column, Wanted, rows};

/// More rows than anybody leafs through.
const MAX_OFFSET: usize = 1_000_000;

/// What stands in the query.
#[derive(Debug, Deserialize)]
pub(crate) struct Asked {
    #[serde(default)]
    search: String,
    sort: Option<String>,
    offset: Option<String>,
    limit: Option<String>,
}

pub(crate) async fn table(ask: Box<Ask>) -> Result<Response, Problem> {
    let (caller, app) = (ask.caller()?, &ask.app);
    caller.may_read(app)?;
    let wanted = ask.query::<Asked>()?.wanted()?;
    // Otherwise the last look is half a second old.
    if !app.ledger.has_listeners() {
        app.observed.overviews.get("", async || _ = observer::look(app).await).await;
    }
    Ok(ok(&rows(app, &wanted)))
}

impl Asked {
    fn wanted(self) -> Result<Wanted, Problem> {
        let default = Wanted::default();
        let (column, is_descending) = match self.sort.as_deref() {
            None => (default.column, default.is_descending),
            Some(sort) => column(sort)?,
        };
        let number = |text: Option<String>, default| match text {
            None => Some(default),
            Some(text) => text.parse().ok(),
        };
        let offset = number(self.offset, default.offset)
            .filter(|offset| *offset <= MAX_OFFSET)
            .ok_or_else(|| Problem::field("offset", "offset is a number between 0 and 1000000"))?;
        let limit = number(self.limit, default.limit)
            .filter(|limit| (1..=1000).contains(limit))
            .ok_or_else(|| Problem::field("limit", "limit is a number between 1 and 1000"))?;
        Ok(Wanted { search: self.search, column, is_descending, offset, limit })
    }
}

/// A column, with a minus sign before it if it is descending.
fn column(sort: &str) -> Result<(Column, bool), Problem> {
    let (name, is_descending) = match sort.strip_prefix('-') {
        Some(name) => (name, true),
        None => (sort, false),
    };
    let column = Column::named(name).ok_or_else(|| {
        let detail = "sort is name, holder, held, left or waiting, with - before it to reverse it";
        Problem::field("sort", detail)
    })?;
    Ok((column, is_descending))
}
