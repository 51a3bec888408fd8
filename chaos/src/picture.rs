//! One overlap as a picture: a row for each of the two holders, a row for each server with its
//! lives, and a line for each fault. Plain SVG, so that a browser shows it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use crate::check::{Section, sections, unexcused};
use crate::history::{History, ServerEvent};
use crate::timeline::{Scene, seconds};

/// Pictures per history; the first overlaps tell the most.
pub const DRAWN: usize = 3;

const WIDTH: f64 = 1200.0;
const LEFT: f64 = 170.0;
const RIGHT: f64 = 30.0;
const ROW: f64 = 46.0;
const BAR: f64 = 18.0;
/// Faults have their names in lines above the rows. A letter is about so wide.
const FAULT_LINE: f64 = 15.0;
const LETTER: f64 = 6.2;

const FIRST: &str = "#1f6fb4";
const SECOND: &str = "#c4531d";
/// Lives in the order of their coming, again and again.
const LIVES: [&str; 6] = ["#4f9d69", "#8a6bbd", "#b59a2d", "#3c8d93", "#a8577e", "#6d7f3a"];

/// Draws the first overlaps of a history into `folder` and names the files.
pub fn draw(history: &History, folder: &Path) -> io::Result<Vec<PathBuf>> {
    let sections = sections(history);
    let mut drawn = Vec::new();
    for (number, overlap) in (1..).zip(unexcused(history, &sections).0).take(DRAWN) {
        let path = folder.join(format!("overlap-{number}.svg"));
        std::fs::write(&path, svg(&Scene::new(history, overlap)))?;
        drawn.push(path);
    }
    Ok(drawn)
}

/// The picture of a scene.
pub fn svg(scene: &Scene<'_>) -> String {
    Drawing::new(scene).finish()
}

struct Drawing<'a> {
    scene: &'a Scene<'a>,
    /// Of the first row.
    top: f64,
    servers: usize,
    body: String,
}

impl<'a> Drawing<'a> {
    fn new(scene: &'a Scene<'a>) -> Self {
        let servers = scene.history.servers.iter().map(|line| match &line.what {
            ServerEvent::Started { server, .. }
            | ServerEvent::Ended { server, .. }
            | ServerEvent::Clock { server, .. }
            | ServerEvent::Forgot { server, .. } => server + 1,
            ServerEvent::Leads { .. } => 0,
        });
        Self { scene, top: 0.0, servers: servers.max().unwrap_or(0), body: String::new() }
    }

    fn finish(mut self) -> String {
        self.faults();
        self.overlap();
        let overlap = self.scene.overlap;
        self.holder(0, overlap.first, FIRST);
        self.holder(1, overlap.second, SECOND);
        for server in 0..self.servers {
            self.server(server);
        }
        self.votes(overlap.first, FIRST, -5.0);
        self.votes(overlap.second, SECOND, 5.0);
        self.axis();
        self.legend();
        let height = self.bottom() + 92.0;
        let title = format!(
            "{}: two holders from {} to {}, seed {}",
            overlap.first.lock,
            seconds(overlap.from()),
            seconds(overlap.to()),
            self.scene.history.meta.seed
        );
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
             width=\"{WIDTH}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
             <text x=\"16\" y=\"26\" font-size=\"17\" font-weight=\"bold\">{}</text>\n{}</svg>\n",
            escape(&title),
            self.body
        )
    }

    fn x(&self, at: u64) -> f64 {
        let at = at.clamp(self.scene.from, self.scene.to) - self.scene.from;
        let share = at as f64 / (self.scene.to - self.scene.from).max(1) as f64;
        LEFT + share * (WIDTH - LEFT - RIGHT)
    }

    /// The middle of a row.
    fn y(&self, row: usize) -> f64 {
        self.top + (row as f64 + 0.5) * ROW
    }

    fn server_y(&self, server: usize) -> f64 {
        self.y(2 + server) + 12.0
    }

    fn bottom(&self) -> f64 {
        self.server_y(self.servers) - ROW / 2.0
    }

    fn add(&mut self, element: String) {
        self.body.push_str(&element);
        self.body.push('\n');
    }

    fn text(&mut self, x: f64, y: f64, style: &str, words: &str) {
        let words = escape(words);
        self.add(format!("<text x=\"{x:.1}\" y=\"{y:.1}\" {style}>{words}</text>"));
    }

    fn bar(&mut self, y: f64, [from, to]: [u64; 2], style: &str, says: &str) {
        let (left, right) = (self.x(from), self.x(to));
        let (top, width) = (y - BAR / 2.0, (right - left).max(1.0));
        let says = escape(says);
        self.add(format!(
            "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{BAR}\" {style}>\
             <title>{says}</title></rect>"
        ));
    }

    /// A line for each fault, its name above it. Names that would meet go to lines of their own.
    fn faults(&mut self) {
        let mut lines: Vec<f64> = Vec::new();
        let mut names = Vec::new();
        for line in &self.scene.history.faults {
            let at = self.scene.since_start(line.at);
            if !self.scene.has(at) {
                continue;
            }
            let story: String = line.what.story.chars().take(90).collect();
            let width = story.chars().count() as f64 * LETTER;
            let x = self.x(at);
            // At the right edge a name ends at its line instead of beginning there.
            let is_left = x + width > WIDTH - 4.0;
            let begins = if is_left { x - width } else { x };
            let free = lines.iter().position(|end| *end < begins);
            let place = free.unwrap_or_else(|| {
                lines.push(0.0);
                lines.len() - 1
            });
            lines[place] = begins + width + 8.0;
            names.push((x, place, is_left, story));
        }
        self.top = 52.0 + lines.len() as f64 * FAULT_LINE;
        let bottom = self.bottom();
        for (x, place, is_left, story) in names {
            let y = 50.0 + place as f64 * FAULT_LINE;
            self.add(format!(
                "<line x1=\"{x:.1}\" y1=\"{y:.1}\" x2=\"{x:.1}\" y2=\"{bottom:.1}\" \
                 stroke=\"#999999\" stroke-dasharray=\"3 3\"/>"
            ));
            let (anchor, x) = if is_left { ("end", x - 3.0) } else { ("start", x + 3.0) };
            let style = format!("fill=\"#555555\" font-size=\"11\" text-anchor=\"{anchor}\"");
            self.text(x, y, &style, &story);
        }
    }

    fn overlap(&mut self) {
        let overlap = self.scene.overlap;
        let (left, right) = (self.x(overlap.from()), self.x(overlap.to()));
        let (top, bottom) = (self.top, self.bottom());
        self.add(format!(
            "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" \
             fill=\"#d62728\" opacity=\"0.16\"/>",
            (right - left).max(2.0),
            bottom - top
        ));
    }

    fn holder(&mut self, row: usize, section: &Section, color: &str) {
        let y = self.y(row);
        let who = format!("holder {}.{}", section.holder, section.life);
        self.text(16.0, y - 1.0, "font-weight=\"bold\"", &who);
        self.text(16.0, y + 13.0, "fill=\"#555555\"", &format!("fence {}", section.fence));
        let waits = format!("fill=\"{color}\" opacity=\"0.25\"");
        self.bar(y, [section.asked, section.granted], &waits, "asks");
        let holds = format!("fill=\"{color}\"");
        self.bar(y, [section.granted, section.end()], &holds, &section.to_string());
    }

    /// The lives of a server, from its records, and its processes and losses, from the run.
    fn server(&mut self, server: usize) {
        let (scene, y) = (self.scene, self.server_y(server));
        let is_spare = server >= scene.history.meta.nodes;
        let name = if is_spare { "spare server".into() } else { format!("server {server}") };
        self.text(16.0, y - 1.0, "font-weight=\"bold\"", &name);
        if let Some(member) = scene.history.meta.names.get(server) {
            self.text(16.0, y + 13.0, "fill=\"#555555\" font-size=\"11\"", member);
        }
        self.bar(y, [scene.from, scene.to], "fill=\"#eeeeee\"", "no record that anybody told of");
        self.lives(server);
        let mut gone: Option<u64> = None;
        for line in &scene.history.servers {
            let at = scene.since_start(line.at);
            match &line.what {
                ServerEvent::Ended { server: of, .. } if *of == server => gone = Some(at),
                ServerEvent::Started { server: of, .. } if *of == server => {
                    if let Some(from) = gone.take().filter(|_| at >= scene.from) {
                        self.bar(
                            y,
                            [from, at],
                            "fill=\"#ffffff\" stroke=\"#999999\"",
                            "no process",
                        );
                    }
                }
                ServerEvent::Forgot { server: of, why, .. } if *of == server && scene.has(at) => {
                    let (x, top, bottom) = (self.x(at), y - BAR, y + BAR);
                    self.add(format!(
                        "<line x1=\"{x:.1}\" y1=\"{top:.1}\" x2=\"{x:.1}\" y2=\"{bottom:.1}\" \
                         stroke=\"#000000\" stroke-width=\"3\"/>"
                    ));
                    let words = format!("forgot: {why}");
                    let anchor = if x > WIDTH - 230.0 { "end" } else { "start" };
                    let style = format!("font-size=\"10\" text-anchor=\"{anchor}\"");
                    self.text(x + 3.0, bottom - 1.0, &style, &words);
                }
                _ => {}
            }
        }
        if let Some(from) = gone {
            self.bar(y, [from, scene.to], "fill=\"#ffffff\" stroke=\"#999999\"", "no process");
        }
    }

    /// Each life in a colour of its own: pale in quarantine, full when admitted.
    fn lives(&mut self, server: usize) {
        let (scene, y) = (self.scene, self.server_y(server));
        let mut colors: BTreeMap<&str, &str> = BTreeMap::new();
        let changes: Vec<_> =
            scene.records().into_iter().filter(|change| change.server == server).collect();
        for (index, change) in changes.iter().enumerate() {
            let new = LIVES[colors.len() % LIVES.len()];
            let color = *colors.entry(change.life).or_insert(new);
            let next = changes.get(index + 1).map_or(scene.to, |next| next.at);
            let to = next.min(self.end_of_life(server, change.at));
            if to < scene.from || change.at > scene.to {
                continue;
            }
            let opacity = if change.state == "admitted" { "0.85" } else { "0.3" };
            let style = format!("fill=\"{color}\" opacity=\"{opacity}\"");
            let says = format!("{}, life {}", change.state, change.life);
            self.bar(y, [change.at, to], &style, &says);
            let width = self.x(to) - self.x(change.at);
            if width > 120.0 {
                let words = format!("{:.8} {}", change.life, change.state);
                self.text(self.x(change.at) + 4.0, y + 4.0, "font-size=\"10\"", &words);
            }
        }
    }

    /// When a life that began at `from` was over, whether anybody had noticed or not.
    fn end_of_life(&self, server: usize, from: u64) -> u64 {
        let ends = self.scene.history.servers.iter().filter_map(|line| match &line.what {
            ServerEvent::Ended { server: of, .. } | ServerEvent::Forgot { server: of, .. } => {
                (*of == server).then(|| self.scene.since_start(line.at))
            }
            _ => None,
        });
        ends.filter(|at| *at > from).min().unwrap_or(self.scene.to)
    }

    /// A dot for each counted vote, where its ballot was won, on the server that the vote names.
    fn votes(&mut self, section: &Section, color: &str, aside: f64) {
        for won in self.scene.ballots_of(section) {
            let at = self.scene.since_start(won.at);
            for vote in won.ballot.votes.iter().filter(|_| self.scene.has(at)) {
                let Some(server) = self.scene.server_of(&vote.run) else { continue };
                let (x, y) = (self.x(at), self.server_y(server) + aside);
                let says = escape(&format!(
                    "{} {} by {}, life {:.8}",
                    won.ballot.kind, vote.word, vote.node, vote.life
                ));
                self.body.push_str(&format!(
                    "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.5\" fill=\"{color}\" \
                     stroke=\"#ffffff\"><title>{says}</title></circle>\n"
                ));
            }
        }
    }

    fn axis(&mut self) {
        let (scene, y) = (self.scene, self.bottom() + 6.0);
        let span = (scene.to - scene.from) as f64 / 1e9;
        let step = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0]
            .into_iter()
            .find(|step| span / step <= 12.0)
            .unwrap_or(60.0);
        let mut tick = (scene.from as f64 / 1e9 / step).ceil() * step;
        while tick <= scene.to as f64 / 1e9 {
            let x = self.x((tick * 1e9) as u64);
            self.add(format!(
                "<line x1=\"{x:.1}\" y1=\"{y:.1}\" x2=\"{x:.1}\" y2=\"{:.1}\" stroke=\"#333333\"/>",
                y + 5.0
            ));
            self.text(x, y + 18.0, "text-anchor=\"middle\"", &format!("{tick:.1} s"));
            tick += step;
        }
    }

    fn legend(&mut self) {
        let y = self.bottom() + 52.0;
        self.text(16.0, y, "fill=\"#333333\"", LEGEND);
        let (first, second) = (self.scene.overlap.first, self.scene.overlap.second);
        let mut x = 16.0;
        for (section, color) in [(first, FIRST), (second, SECOND)] {
            let words = format!("votes counted by holder {}.{}", section.holder, section.life);
            let middle = y + 18.0;
            let mut circle = String::new();
            _ = write!(
                circle,
                "<circle cx=\"{:.1}\" cy=\"{middle:.1}\" r=\"4.5\" fill=\"{color}\"/>",
                x + 5.0
            );
            self.add(circle);
            self.text(x + 16.0, middle + 4.0, "fill=\"#333333\"", &words);
            x += 230.0;
        }
    }
}

const LEGEND: &str = "Red ground: both held the lock. Holders: pale asks, full holds. Servers: each \
                      life has a colour, pale in quarantine, full when admitted; a black line: it \
                      forgot; a frame: no process.";

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
