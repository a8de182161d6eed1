//! Locating values by JSON Pointer: compared with serde_json.

use forebay_core::pointer::{Pointer, locate};
use serde_json::Value;

use crate::{Input, oracle};

/// Values of a document that are looked up.
const MAX_PATHS: usize = 100;

pub fn compare(Input { knobs, data }: Input<'_>) {
    // The first bytes are also used as a pointer, often one that leads nowhere.
    let (path, document) = data.split_at(data.len().min(usize::from(knobs[0] % 16)));
    for data in [data, document] {
        let Some(value) = oracle::parse(data) else { continue };
        let mut paths = Vec::new();
        collect(&value, String::new(), &mut paths);
        paths.extend(std::str::from_utf8(path).map(str::to_owned));
        for path in paths {
            check(data, &value, &path);
        }
    }
}

fn check(data: &[u8], value: &Value, path: &str) {
    let Ok(pointer) = Pointer::parse(path) else {
        assert!(!path.is_empty() && (!path.starts_with('/') || path.contains('~')), "{path:?} is a pointer");
        return;
    };
    let found = locate(data, &pointer).ok().map(|span| oracle::parse(&data[span]).expect("a whole value"));
    assert_eq!(found.as_ref(), value.pointer(path), "at {path:?}");
}

/// Collects the pointers of a value and of all values in it.
fn collect(value: &Value, path: String, paths: &mut Vec<String>) {
    if paths.len() == MAX_PATHS {
        return;
    }
    match value {
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(n, item)| collect(item, format!("{path}/{n}"), paths));
        }
        Value::Object(members) => members.iter().for_each(|(key, member)| {
            let key = key.replace('~', "~0").replace('/', "~1");
            collect(member, format!("{path}/{key}"), paths);
        }),
        _ => {}
    }
    paths.push(path);
}
