//! Projecting: compared with projecting the values of serde_json.

use forebay_core::project;
use serde_json::{Map, Value};

use crate::{Input, oracle};

/// Fields of the generated documents. The knobs choose which are requested.
const FIELDS: [&str; 8] = ["id", "name", "a", "id.a", "name.id.a", "a.name", "failed", "é"];

pub fn compare(Input { knobs, data }: Input<'_>) {
    let chosen = FIELDS.iter().enumerate().filter(|(i, _)| knobs[0] >> i & 1 == 1);
    let fields: Vec<&str> = chosen.map(|(_, field)| *field).collect();
    match project(data, &fields) {
        Ok(out) => check(data, &fields, &out),
        Err(_) if fields.is_empty() => {}
        Err(error) => assert!(!is_shallow(data), "{error} for valid JSON"),
    }
}

fn check(data: &[u8], fields: &[&str], out: &[u8]) {
    assert!(
        oracle::is_json(out) || oracle::rows(out).is_some(),
        "not JSON: {}",
        String::from_utf8_lossy(out)
    );
    let paths: Vec<Vec<&str>> = fields.iter().map(|field| field.split('.').collect()).collect();
    if let Some(value) = oracle::parse(data) {
        assert_eq!(oracle::parse(out), Some(naive(&value, &paths)));
    } else if !oracle::is_json(data)
        && let Some(rows) = oracle::rows(data)
    {
        let projected = oracle::rows(out).expect("rows give rows");
        assert_eq!(projected.len(), rows.len());
        for (row, projected) in rows.into_iter().zip(projected) {
            let Some(value) = oracle::parse(row) else { continue };
            assert_eq!(oracle::parse(projected), Some(naive(&value, &paths)));
        }
    }
}

/// Deeply nested documents are rejected, and serde_json rejects them as well.
fn is_shallow(data: &[u8]) -> bool {
    oracle::parse(data).is_some()
}

fn naive(value: &Value, paths: &[Vec<&str>]) -> Value {
    match value {
        Value::Array(items) => items.iter().map(|item| naive(item, paths)).collect(),
        Value::Object(members) => Value::Object(
            members
                .iter()
                .filter_map(|(key, member)| {
                    let deeper: Vec<_> =
                        paths.iter().filter(|path| path[0] == key).map(|path| path[1..].to_vec()).collect();
                    let member = match member {
                        _ if deeper.iter().any(Vec::is_empty) => member.clone(),
                        Value::Object(_) | Value::Array(_) if !deeper.is_empty() => naive(member, &deeper),
                        _ => return None,
                    };
                    Some((key.clone(), member))
                })
                .collect::<Map<_, _>>(),
        ),
        _ => Value::Null,
    }
}
