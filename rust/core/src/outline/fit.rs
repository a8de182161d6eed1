//! Renders a shape within a budget: details are revealed in one fixed order, as many as fit.

use std::collections::VecDeque;
use std::fmt::Write;

use super::read::Document;
use super::shape::{Array, BOOL, CountRange, FLOAT, Field, INT, NULL, Object, STR, Shape};

/// Longest key that is shown whole, in characters.
const MAX_KEY_CHARS: usize = 40;

const OMISSION: &str = "…";
const SEPARATOR: &str = ", ";

pub(super) fn fit(document: &Document<'_>, max_bytes: usize) -> String {
    let layout = Layout::new(document);
    let steps = layout.steps();
    match layout.sizes(&steps).iter().rposition(|size| *size <= max_bytes) {
        Some(count) => layout.render(&steps[..count]),
        None => coarsest(document).to_owned(),
    }
}

/// Returns the outline that fits any budget.
fn coarsest(document: &Document<'_>) -> &'static str {
    match &document.shape {
        _ if document.is_ndjson => "ndjson",
        Shape { array: Some(_), .. } => "[…]",
        _ => "{…}",
    }
}

/// An outline whose containers show none, some or all of their parts.
pub(super) struct Layout {
    root: Part,
    containers: Vec<Container>,
}

/// A value, with its key if it has one.
type Part = Vec<Piece>;

enum Piece {
    Text(String),
    /// Index into `Layout::containers`.
    Container(usize),
}

struct Container {
    open: char,
    close: String,
    parts: Vec<Part>,
    /// Whether all parts are shown from the start: an array of scalars is not worth a step.
    is_open: bool,
    /// Whether something is left out even if all parts are shown.
    is_cut: bool,
    /// Whether its contents count as the same level: an array or map says little by itself.
    is_transparent: bool,
}

impl Container {
    /// Returns the bytes between the parts when `shown` of them are shown.
    fn gap_bytes(&self, shown: usize) -> usize {
        let omissions = usize::from(self.has_omission(shown));
        (shown + omissions).saturating_sub(1) * SEPARATOR.len() + omissions * OMISSION.len()
    }

    fn has_omission(&self, shown: usize) -> bool {
        self.is_cut || shown < self.parts.len()
    }
}

impl Layout {
    pub(super) fn new(document: &Document<'_>) -> Self {
        let mut layout = Self { root: Vec::new(), containers: Vec::new() };
        let mut root = Vec::new();
        if document.is_ndjson {
            root.push(Piece::Text("ndjson ".to_owned()));
        }
        layout.add_shape(&document.shape, &mut root);
        layout.root = root;
        layout
    }

    /// Returns the reveal steps in order, each the index of the container that shows one more part: level by
    /// level, taking turns among all containers of a level.
    pub(super) fn steps(&self) -> Vec<usize> {
        let mut shown = self.initial_counts();
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

    /// Returns the size of the outline after no step, one step, two steps, …
    pub(super) fn sizes(&self, steps: &[usize]) -> Vec<usize> {
        let mut shown = self.initial_counts();
        let mut size = self.size(&self.root);
        let mut sizes = vec![size];
        for &id in steps {
            let container = &self.containers[id];
            size += self.size(&container.parts[shown[id]]) + container.gap_bytes(shown[id] + 1);
            size -= container.gap_bytes(shown[id]);
            shown[id] += 1;
            sizes.push(size);
        }
        sizes
    }

    /// Returns the size of a part before any step.
    fn size(&self, part: &[Piece]) -> usize {
        let size = |piece: &Piece| match piece {
            Piece::Text(text) => text.len(),
            Piece::Container(id) => {
                let container = &self.containers[*id];
                let shown = if container.is_open { &container.parts[..] } else { &[] };
                let parts: usize = shown.iter().map(|part| self.size(part)).sum();
                container.open.len_utf8() + parts + container.gap_bytes(shown.len()) + container.close.len()
            }
        };
        part.iter().map(size).sum()
    }

    pub(super) fn render(&self, steps: &[usize]) -> String {
        let mut shown = self.initial_counts();
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
            if container.has_omission(shown[id]) {
                out.push_str(if shown[id] == 0 { "" } else { SEPARATOR });
                out.push_str(OMISSION);
            }
            out.push_str(&container.close);
        }
    }

    fn initial_counts(&self) -> Vec<usize> {
        let shown = |container: &Container| if container.is_open { container.parts.len() } else { 0 };
        self.containers.iter().map(shown).collect()
    }

    fn add_shape(&mut self, shape: &Shape<'_>, part: &mut Part) {
        let start = part.len();
        let mut alternatives = Vec::new();
        if let Some(object) = &shape.object {
            alternatives.push(self.add_object(object));
        }
        if let Some(array) = &shape.array {
            alternatives.push(self.add_array(array));
        }
        alternatives.extend(scalar_names(shape.scalars).map(|name| Piece::Text(name.to_owned())));
        for piece in alternatives {
            if part.len() > start {
                part.push(Piece::Text("|".to_owned()));
            }
            part.push(piece);
        }
    }

    fn add_object(&mut self, object: &Object<'_>) -> Piece {
        let mut parts = Vec::new();
        for field in &object.fields {
            let mut part = vec![Piece::Text(key_label(field, object))];
            self.add_shape(&field.shape, &mut part);
            parts.push(part);
        }
        self.add_container(Container {
            open: '{',
            close: if object.is_map { format!("}}{}", count_suffix(object.keys)) } else { "}".to_owned() },
            parts,
            is_open: false,
            // The one field of a map stands for all its keys.
            is_cut: object.is_cut && !object.is_map,
            is_transparent: object.is_map,
        })
    }

    fn add_array(&mut self, array: &Array<'_>) -> Piece {
        let mut item = Vec::new();
        self.add_shape(&array.item, &mut item);
        if array.len == CountRange(Some((0, 0))) {
            return Piece::Text("[]".to_owned());
        }
        let is_open = item.iter().all(|piece| matches!(piece, Piece::Text(_)));
        let is_unknown = item.is_empty();
        self.add_container(Container {
            open: '[',
            close: format!("]{}", count_suffix(array.len)),
            parts: if is_unknown { Vec::new() } else { vec![item] },
            is_open,
            is_cut: is_unknown,
            is_transparent: true,
        })
    }

    fn add_container(&mut self, container: Container) -> Piece {
        self.containers.push(container);
        Piece::Container(self.containers.len() - 1)
    }
}

/// Returns the names of a set of scalar types. `float` includes `int`.
fn scalar_names(set: u8) -> impl Iterator<Item = &'static str> {
    let set = if set & FLOAT == 0 { set } else { set & !INT };
    let names = [(STR, "str"), (INT, "int"), (FLOAT, "float"), (BOOL, "bool"), (NULL, "null")];
    names.into_iter().filter(move |(bit, _)| set & bit != 0).map(|(_, name)| name)
}

fn count_suffix(CountRange(counts): CountRange) -> String {
    match counts {
        None => String::new(),
        Some((min, max)) if min == max => format!(" ×{max}"),
        Some((min, max)) => format!(" ×{min}-{max}"),
    }
}

fn key_label(field: &Field<'_>, object: &Object<'_>) -> String {
    let key = format_key(&field.key);
    match field.count < object.count {
        _ if object.is_map => format!("<{key}>: "),
        true => format!("{key}?: "),
        false => format!("{key}: "),
    }
}

/// Formats a key: bare if it is a plain word, else as a JSON string; never with a line break.
fn format_key(key: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'$' | b'@');
    let (shown, end) = match key.char_indices().nth(MAX_KEY_CHARS) {
        Some((at, _)) => (&key[..at], OMISSION),
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
