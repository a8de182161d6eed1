//! Writes a shape into a budget: everything is revealed in one fixed order, as far as it fits.

use std::collections::VecDeque;
use std::fmt::Write;

use super::read::Document;
use super::shape::{Array, BOOL, Counts, FLOAT, Field, INT, NULL, Object, STR, Shape};

/// Longer keys are cut; the bound is in characters.
const MAX_KEY_CHARS: usize = 40;

const LEFT_OUT: &str = "…";
const SEPARATOR: &str = ", ";

pub(super) fn fit(document: &Document<'_>, max_bytes: usize) -> String {
    let drawing = Drawing::of(document);
    let steps = drawing.steps();
    match drawing.sizes(&steps).iter().rposition(|size| *size <= max_bytes) {
        Some(most) => drawing.render(&steps[..most]),
        None => bare(document).to_owned(),
    }
}

/// What fits where nothing else does.
fn bare(document: &Document<'_>) -> &'static str {
    match &document.shape {
        _ if document.is_ndjson => "ndjson",
        Shape { array: Some(_), .. } => "[…]",
        _ => "{…}",
    }
}

/// An outline as text with holes: containers that show none, some or all of their parts.
pub(super) struct Drawing {
    root: Part,
    containers: Vec<Container>,
}

/// A value, with its key if it has one.
type Part = Vec<Piece>;

enum Piece {
    Text(String),
    /// A number in `Drawing::containers`.
    Container(usize),
}

struct Container {
    open: char,
    close: String,
    parts: Vec<Part>,
    /// Shown from the start: an array of scalars is not worth a step.
    is_open: bool,
    /// Something is left out even if all parts are shown.
    is_cut: bool,
    /// An array or map says little by itself: what is inside counts as of the same level.
    is_transparent: bool,
}

impl Container {
    /// The bytes between the parts, if so many are shown.
    fn gaps(&self, shown: usize) -> usize {
        let cut = usize::from(self.leaves_out(shown));
        (shown + cut).saturating_sub(1) * SEPARATOR.len() + cut * LEFT_OUT.len()
    }

    fn leaves_out(&self, shown: usize) -> bool {
        self.is_cut || shown < self.parts.len()
    }
}

impl Drawing {
    pub(super) fn of(document: &Document<'_>) -> Self {
        let mut drawing = Self { root: Vec::new(), containers: Vec::new() };
        let mut root = Vec::new();
        if document.is_ndjson {
            root.push(Piece::Text("ndjson ".to_owned()));
        }
        drawing.add_shape(&document.shape, &mut root);
        drawing.root = root;
        drawing
    }

    /// The containers to show one more part of, one after the other: level by level, in turns among all
    /// containers of a level.
    pub(super) fn steps(&self) -> Vec<usize> {
        let mut shown = self.initial();
        let mut steps = Vec::new();
        let mut level = VecDeque::new();
        let mut deeper = VecDeque::new();
        self.push_containers(&self.root, &mut level);
        while !level.is_empty() {
            while let Some(id) = level.pop_front() {
                let container = &self.containers[id];
                let Some(part) = container.parts.get(shown[id]) else {
                    continue;
                };
                steps.push(id);
                shown[id] += 1;
                self.push_containers(part, if container.is_transparent { &mut level } else { &mut deeper });
                level.push_back(id);
            }
            std::mem::swap(&mut level, &mut deeper);
        }
        steps
    }

    fn push_containers(&self, part: &[Piece], queue: &mut VecDeque<usize>) {
        queue.extend(part.iter().filter_map(|piece| match piece {
            Piece::Container(id) if !self.containers[*id].is_open => Some(*id),
            _ => None,
        }));
    }

    /// The size of the outline before the first step, after one step, after two, …
    pub(super) fn sizes(&self, steps: &[usize]) -> Vec<usize> {
        let mut shown = self.initial();
        let mut size = self.size(&self.root);
        let mut sizes = vec![size];
        for &id in steps {
            let container = &self.containers[id];
            size += self.size(&container.parts[shown[id]]) + container.gaps(shown[id] + 1);
            size -= container.gaps(shown[id]);
            shown[id] += 1;
            sizes.push(size);
        }
        sizes
    }

    /// The size of a part before any step.
    fn size(&self, part: &[Piece]) -> usize {
        let size = |piece: &Piece| match piece {
            Piece::Text(text) => text.len(),
            Piece::Container(id) => {
                let container = &self.containers[*id];
                let shown = if container.is_open { &container.parts[..] } else { &[] };
                let parts: usize = shown.iter().map(|part| self.size(part)).sum();
                container.open.len_utf8() + parts + container.gaps(shown.len()) + container.close.len()
            }
        };
        part.iter().map(size).sum()
    }

    pub(super) fn render(&self, steps: &[usize]) -> String {
        let mut shown = self.initial();
        steps.iter().for_each(|&id| shown[id] += 1);
        let mut out = String::new();
        self.write(&self.root, &shown, &mut out);
        out
    }

    fn write(&self, part: &[Piece], shown: &[usize], out: &mut String) {
        for piece in part {
            let id = match piece {
                Piece::Text(text) => {
                    out.push_str(text);
                    continue;
                }
                Piece::Container(id) => *id,
            };
            let container = &self.containers[id];
            out.push(container.open);
            for (i, part) in container.parts[..shown[id]].iter().enumerate() {
                out.push_str(if i == 0 { "" } else { SEPARATOR });
                self.write(part, shown, out);
            }
            if container.leaves_out(shown[id]) {
                out.push_str(if shown[id] == 0 { "" } else { SEPARATOR });
                out.push_str(LEFT_OUT);
            }
            out.push_str(&container.close);
        }
    }

    fn initial(&self) -> Vec<usize> {
        let shown = |container: &Container| if container.is_open { container.parts.len() } else { 0 };
        self.containers.iter().map(shown).collect()
    }

    fn add_shape(&mut self, shape: &Shape<'_>, part: &mut Part) {
        let start = part.len();
        let mut alternatives = Vec::new();
        if let Some(object) = &shape.object {
            alternatives.push(self.object(object));
        }
        if let Some(array) = &shape.array {
            alternatives.push(self.array(array));
        }
        alternatives.extend(scalars(shape.scalars).map(|name| Piece::Text(name.to_owned())));
        for piece in alternatives {
            if part.len() > start {
                part.push(Piece::Text("|".to_owned()));
            }
            part.push(piece);
        }
    }

    fn object(&mut self, object: &Object<'_>) -> Piece {
        let mut parts = Vec::new();
        for field in &object.fields {
            let mut part = vec![Piece::Text(label(field, object))];
            self.add_shape(&field.shape, &mut part);
            parts.push(part);
        }
        self.add(Container {
            open: '{',
            close: if object.is_map { format!("}}{}", times(object.keys)) } else { "}".to_owned() },
            parts,
            is_open: false,
            // One field of a map stands for all.
            is_cut: object.is_cut && !object.is_map,
            is_transparent: object.is_map,
        })
    }

    fn array(&mut self, array: &Array<'_>) -> Piece {
        let mut item = Vec::new();
        self.add_shape(&array.item, &mut item);
        if array.len == Counts(Some((0, 0))) {
            return Piece::Text("[]".to_owned());
        }
        let is_open = item.iter().all(|piece| matches!(piece, Piece::Text(_)));
        let is_unknown = item.is_empty();
        self.add(Container {
            open: '[',
            close: format!("]{}", times(array.len)),
            parts: if is_unknown { Vec::new() } else { vec![item] },
            is_open,
            is_cut: is_unknown,
            is_transparent: true,
        })
    }

    fn add(&mut self, container: Container) -> Piece {
        self.containers.push(container);
        Piece::Container(self.containers.len() - 1)
    }
}

/// The names of a set of scalars; what may be a float may be an integer.
fn scalars(set: u8) -> impl Iterator<Item = &'static str> {
    let set = if set & FLOAT == 0 { set } else { set & !INT };
    let names = [(STR, "str"), (INT, "int"), (FLOAT, "float"), (BOOL, "bool"), (NULL, "null")];
    names.into_iter().filter(move |(bit, _)| set & bit != 0).map(|(_, name)| name)
}

fn times(Counts(counts): Counts) -> String {
    match counts {
        None => String::new(),
        Some((least, most)) if least == most => format!(" ×{most}"),
        Some((least, most)) => format!(" ×{least}-{most}"),
    }
}

fn label(field: &Field<'_>, object: &Object<'_>) -> String {
    let key = show_key(&field.key);
    match field.seen < object.seen {
        _ if object.is_map => format!("<{key}>: "),
        true => format!("{key}?: "),
        false => format!("{key}: "),
    }
}

/// A key as it stands if it is a plain word, else as a JSON string; never with a line break.
fn show_key(key: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'$' | b'@');
    let (shown, end) = match key.char_indices().nth(MAX_KEY_CHARS) {
        Some((at, _)) => (&key[..at], LEFT_OUT),
        None => (key, ""),
    };
    if !key.is_empty() && shown.bytes().all(is_plain) {
        return format!("{shown}{end}");
    }
    let mut out = String::from('"');
    for char in shown.chars() {
        match char {
            '"' | '\\' => out.extend(['\\', char]),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            _ if char.is_control() || matches!(char, '\u{2028}' | '\u{2029}') => {
                let _ = write!(out, "\\u{:04x}", u32::from(char));
            }
            _ => out.push(char),
        }
    }
    out + end + "\""
}
