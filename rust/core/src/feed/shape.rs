//! Shapes: what values of a column have been seen, and the type of SQL that holds all of them.

use std::collections::{HashMap, HashSet};

use super::number::Numbers;
use super::selection::Selection;
use super::walk::usual_key;

const BOOL: u8 = 1;
const NUMBER: u8 = 2;
const TEXT: u8 = 4;
const OBJECT: u8 = 8;
const ARRAY: u8 = 16;

/// Maximum number of different keys of a struct. An object with more is a map, which is JSON.
const MAX_MEMBERS: usize = 256;

/// Maximum number of shapes that a thread creates, to bound the memory.
pub(super) const MAX_SHAPES: usize = 16_384;

/// The values seen at one path, merged. A null or missing value leaves no trace.
#[derive(Debug, Clone, Default)]
pub(super) struct Shape {
    kinds: u8,
    numbers: Numbers,
    members: Option<Box<Members>>,
    items: Option<Box<Shape>>,
}

/// The members of the objects seen at one path.
#[derive(Debug, Clone, Default)]
pub(super) struct Members {
    list: Vec<Member>,
    indexes: HashMap<Box<[u8]>, usize>,
    /// Whether there were too many keys for a struct.
    is_map: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Member {
    name: Box<[u8]>,
    /// The key as it is usually written.
    pub(super) key: Box<[u8]>,
    pub(super) shape: Shape,
    /// Number of the last object that had this key, to notice a repeated key.
    pub(super) object: u64,
}

impl Shape {
    pub(super) fn add_bool(&mut self) {
        self.kinds |= BOOL;
    }

    pub(super) fn add_text(&mut self) {
        self.kinds |= TEXT;
    }

    pub(super) fn add_number(&mut self, numbers: Numbers) {
        self.kinds |= NUMBER;
        self.numbers.merge(numbers);
    }

    /// Adds an object whose members are too deep to have shapes.
    pub(super) fn add_deep_object(&mut self) {
        self.kinds |= OBJECT;
        self.members.get_or_insert_default().become_map();
    }

    /// Adds an object, and returns the shapes of its members; `None` if it is a map.
    pub(super) fn add_object(&mut self) -> Option<&mut Members> {
        self.kinds |= OBJECT;
        let members = self.members.get_or_insert_default();
        (!members.is_map).then_some(members)
    }

    /// Adds an array, and returns the shape of its items.
    pub(super) fn add_array(&mut self) -> &mut Shape {
        self.kinds |= ARRAY;
        self.items.get_or_insert_default()
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.kinds |= other.kinds;
        self.numbers.merge(other.numbers);
        if let Some(others) = other.members {
            self.members.get_or_insert_default().merge(*others);
        }
        if let Some(items) = other.items {
            self.items.get_or_insert_default().merge(*items);
        }
    }

    /// Whether any numbers, also inside, need the type `DECIMAL`.
    pub(super) fn has_decimals(&self) -> bool {
        (self.kinds == NUMBER && self.numbers.are_decimals())
            || self.items.as_ref().is_some_and(|items| items.has_decimals())
            || self
                .members
                .as_ref()
                .is_some_and(|members| members.list.iter().any(|member| member.shape.has_decimals()))
    }

    /// Whether all values are numbers.
    pub(super) fn is_number(&self) -> bool {
        self.kinds == NUMBER
    }

    /// Returns the type of a column that holds all values. Values of different types are JSON.
    pub(super) fn sql_type(&self) -> String {
        let json = || "JSON".to_owned();
        match self.kinds {
            0 | TEXT => "VARCHAR".to_owned(),
            BOOL => "BOOLEAN".to_owned(),
            NUMBER => self.numbers.sql_type().unwrap_or_else(json),
            OBJECT => {
                self.members.as_ref().and_then(|members| members.struct_type(None)).unwrap_or_else(json)
            }
            ARRAY => self.items.as_ref().map_or_else(json, |items| format!("{}[]", items.sql_type())),
            _ => json(),
        }
    }

    /// Whether any value is an object.
    pub(super) fn has_objects(&self) -> bool {
        self.kinds & OBJECT != 0
    }

    /// Returns the type of a column that holds the selected members of all values; `None` if the type of the whole
    /// values is not a struct with all of these members.
    pub(super) fn selected_type(&self, selection: &Selection) -> Option<String> {
        if selection.is_whole() {
            return Some(self.sql_type());
        }
        let members = self.members.as_ref().filter(|_| self.kinds == OBJECT)?;
        members.struct_type(Some(selection))
    }

    /// Returns the type of a column of cells, which are all texts: that of the numbers that they are, or text.
    pub(super) fn cell_type(&self) -> String {
        let number = self.is_number().then(|| self.numbers.sql_type()).flatten();
        number.unwrap_or_else(|| "VARCHAR".to_owned())
    }
}

impl Members {
    /// Returns the index of a key, which is added if it is new; `None` if there are too many.
    pub(super) fn find_or_add(&mut self, name: &[u8], shapes: &mut usize) -> Option<usize> {
        if let Some(&at) = self.indexes.get(name) {
            return Some(at);
        }
        if self.list.len() >= MAX_MEMBERS || *shapes >= MAX_SHAPES {
            self.become_map();
            return None;
        }
        *shapes += 1;
        let at = self.list.len();
        self.list.push(Member {
            name: name.into(),
            key: usual_key(name),
            shape: Shape::default(),
            object: 0,
        });
        self.indexes.insert(name.into(), at);
        Some(at)
    }

    pub(super) fn get(&mut self, at: usize) -> Option<&mut Member> {
        self.list.get_mut(at)
    }

    fn become_map(&mut self) {
        *self = Self { is_map: true, ..Self::default() };
    }

    fn merge(&mut self, other: Self) {
        if other.is_map {
            self.become_map();
        }
        for member in other.list {
            if self.is_map {
                return;
            }
            // Each thread kept to the limit of shapes, so it is not checked again.
            if let Some(at) = self.find_or_add(&member.name, &mut 0) {
                self.list[at].shape.merge(member.shape);
            }
        }
    }

    /// Returns the type of a struct with the selected members; `None` if the keys cannot be names of its fields, or a
    /// selected one is missing.
    fn struct_type(&self, selection: Option<&Selection>) -> Option<String> {
        let mut names = HashSet::new();
        let mut fields = Vec::with_capacity(self.list.len());
        for member in &self.list {
            let name = std::str::from_utf8(&member.name).ok().filter(|name| is_identifier(name))?;
            // Names of fields that differ in case only are equal.
            if !names.insert(name.to_lowercase()) {
                return None;
            }
            let sql_type = match selection.map(|selection| selection.member(&member.name)) {
                None => member.shape.sql_type(),
                Some(Some(selection)) => member.shape.selected_type(selection)?,
                Some(None) => continue,
            };
            fields.push(format!("{} {sql_type}", quote_identifier(name)));
        }
        let is_complete = selection.is_none_or(|selection| fields.len() == selection.len());
        (is_complete && !fields.is_empty()).then(|| format!("STRUCT({})", fields.join(", ")))
    }
}

/// Whether a text can be an identifier of SQL, in quotes.
pub(super) fn is_identifier(name: &str) -> bool {
    !name.is_empty() && !name.contains('\0')
}

fn quote_identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
