//! Writes the chosen details.

use super::tree::{Container, ELLIPSIS, HIDDEN, Node, Text, Tree, Value};

/// Writes the answer, which takes exactly `size` bytes.
pub(super) fn render(tree: &Tree, data: &[u8], size: usize) -> Vec<u8> {
    let mut renderer = Renderer { tree, data, out: Vec::with_capacity(size) };
    if let Some(root) = tree.levels.first().and_then(|level| level.first()) {
        renderer.write_value(0, root);
    }
    debug_assert_eq!(renderer.out.len(), size);
    renderer.out
}

struct Renderer<'a> {
    tree: &'a Tree,
    data: &'a [u8],
    out: Vec<u8>,
}

impl Renderer<'_> {
    fn write_value(&mut self, depth: usize, node: &Node) {
        match &node.value {
            Value::Whole { span, size } => self.write_whole(&self.data[span.clone()], *size),
            Value::Hidden => self.out.extend_from_slice(HIDDEN),
            Value::Text(text) => self.write_text(text),
            Value::Container(container) if container.is_array => self.write_array(depth, container),
            Value::Container(container) => self.write_object(depth, container),
        }
    }

    fn write_array(&mut self, depth: usize, array: &Container) {
        let is_complete = array.is_complete();
        self.out.extend_from_slice(if is_complete { b"[" } else { b"{\"items\":[" });
        self.write_children(depth, array);
        self.out.push(b']');
        if !is_complete {
            let counts = format!(",\"totalCount\":{},\"showing\":{}}}", array.total, array.shown);
            self.out.extend_from_slice(counts.as_bytes());
        }
    }

    fn write_object(&mut self, depth: usize, object: &Container) {
        self.out.push(b'{');
        self.write_children(depth, object);
        if !object.is_complete() {
            self.out.extend_from_slice(if object.shown > 0 { b",\"" } else { b"\"" });
            self.out.resize(self.out.len() + object.dots, b'.');
            let count = format!("\":{}", object.total - object.shown);
            self.out.extend_from_slice(count.as_bytes());
        }
        self.out.push(b'}');
    }

    fn write_children(&mut self, depth: usize, container: &Container) {
        let start = container.children.start;
        let shown =
            self.tree.levels.get(depth + 1).and_then(|level| level.get(start..start + container.shown));
        for (i, child) in shown.unwrap_or_default().iter().enumerate() {
            if i > 0 {
                self.out.push(b',');
            }
            if let Some(key) = &child.key {
                self.write_text(&key.text);
                self.out.push(b':');
            }
            self.write_value(depth + 1, child);
        }
    }

    fn write_text(&mut self, text: &Text) {
        let start = text.content.start;
        self.out.push(b'"');
        self.out.extend_from_slice(&self.data[start..start + text.shown]);
        if text.is_cut() {
            self.out.extend_from_slice(ELLIPSIS);
        }
        self.out.push(b'"');
    }

    fn write_whole(&mut self, value: &[u8], size: usize) {
        if value.len() == size {
            return self.out.extend_from_slice(value);
        }
        push_minified(value, &mut self.out);
    }
}

/// Appends a valid value as it is in the payload, without white space between its tokens.
pub(crate) fn push_minified(value: &[u8], out: &mut Vec<u8>) {
    let (mut inside, mut escaped) = (false, false);
    for &byte in value {
        inside ^= byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        if inside || !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
            out.push(byte);
        }
    }
}
