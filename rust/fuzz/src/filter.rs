//! Filters: compared with conditions on the values of serde_json.

use std::cmp::Ordering;

use forebay_core::{Filter, ItemIndex, index_items};
use serde_json::{Value, json};

use crate::{Input, oracle};

/// Fields of the generated documents. The knobs choose two of them, and the conditions on them.
const FIELDS: [&str; 8] = ["id", "name", "a", "id.a", "name.id.a", "a.name", "failed", "é"];
const OPERATORS: [&str; 8] = ["=", "!=", "<", ">=", "in", "contains", "exists", "matches"];

pub fn compare(Input { knobs, data }: Input<'_>) {
    let Ok(index) = index_items(data, None, false) else { return };
    let operands =
        [json!(1), json!("a"), json!("failed"), json!(null), json!(true), json!(-0.5), json!("é"), json!(7)];
    let condition = |knob: u8, operand: u8| {
        let operator = OPERATORS[usize::from(knob >> 3 & 7)];
        let operand = &operands[usize::from(operand & 7)];
        let operand = match operator {
            "<" | ">=" if !operand.is_number() && !operand.is_string() => json!(0),
            "in" => json!([operand, "name"]),
            "exists" => json!(knob >> 6 == 0),
            "matches" => json!("[a-f]"),
            _ => operand.clone(),
        };
        (FIELDS[usize::from(knob & 7)], operator, operand)
    };
    let conditions = [condition(knobs[0], knobs[2]), condition(knobs[1], knobs[3])];
    let mut fields = serde_json::Map::new();
    for (field, operator, operand) in &conditions {
        let operators = fields.entry(*field).or_insert_with(|| json!({}));
        operators[*operator] = operand.clone();
    }
    // If both are the same operator on the same field, the second one replaced the first.
    let is_single = conditions[0].0 == conditions[1].0 && conditions[0].1 == conditions[1].1;
    let expected = if is_single { &conditions[1..] } else { &conditions[..] };
    let filter = Filter::parse(&Value::from(fields).to_string(), &[]).expect("these conditions are valid");
    check(data, &index, &filter, expected);
}

fn check(data: &[u8], index: &ItemIndex, filter: &Filter, conditions: &[(&str, &str, Value)]) {
    let is_valid = oracle::is_json(data) || oracle::rows(data).is_some();
    let mut block = 0;
    while let Some(chunk) = index.chunk(block, 0) {
        block += chunk.block_count;
        let bytes = &data[chunk.start as usize..chunk.end as usize];
        let result = filter.count(bytes, index, &chunk);
        let counts = match result {
            Ok(counts) => counts,
            Err(error) => {
                assert!(!is_valid, "{error} for valid JSON");
                continue;
            }
        };
        let selection = filter.select(bytes, index, &chunk, 0, usize::MAX).expect("what counts can be read");
        assert_eq!(counts.iter().sum::<u64>(), selection.numbers.len() as u64);
        if !is_valid {
            continue;
        }
        let all = Filter::parse(r#"{"no such field": {"exists": false}}"#, &[]).expect("a condition");
        let all = all.select(bytes, index, &chunk, 0, usize::MAX).expect("all items");
        assert_eq!(all.numbers.len() as u64, chunk.count);
        let Some(Value::Array(items)) = oracle::parse(&all.content) else { continue };
        let matching =
            items.iter().zip(all.numbers).filter(|(item, _)| conditions.iter().all(|one| holds(item, one)));
        assert_eq!(selection.numbers, matching.map(|(_, number)| number).collect::<Vec<_>>());
    }
}

fn holds(item: &Value, (field, operator, operand): &(&str, &str, Value)) -> bool {
    let mut found = Vec::new();
    reach(item, &field.split('.').collect::<Vec<_>>(), &mut found);
    if !matches!(*operator, "contains" | "exists") {
        found = found.into_iter().flat_map(flatten).collect();
    }
    let any = |passes: &dyn Fn(&Value) -> bool| found.iter().any(|value| passes(value));
    match *operator {
        "=" => any(&|value| is_equal(value, operand)),
        "!=" => !any(&|value| is_equal(value, operand)),
        "<" => any(&|value| order(value, operand) == Some(Ordering::Less)),
        ">=" => any(&|value| order(value, operand).is_some_and(Ordering::is_ge)),
        "in" => {
            any(&|value| operand.as_array().is_some_and(|list| list.iter().any(|one| is_equal(value, one))))
        }
        "contains" => any(&|value| match (value, operand) {
            (Value::String(text), Value::String(part)) => text.contains(part.as_str()),
            (Value::Array(items), operand) => items.iter().any(|item| is_equal(item, operand)),
            _ => false,
        }),
        "exists" => found.is_empty() != (*operand == Value::Bool(true)),
        "matches" => {
            any(&|value| value.as_str().is_some_and(|text| text.contains(['a', 'b', 'c', 'd', 'e', 'f'])))
        }
        other => panic!("{other}"),
    }
}

fn flatten(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().flat_map(flatten).collect(),
        value => vec![value],
    }
}

fn reach<'a>(value: &'a Value, path: &[&str], out: &mut Vec<&'a Value>) {
    match (value, path) {
        (value, []) => out.push(value),
        (Value::Object(members), [key, rest @ ..]) => {
            members.get(*key).into_iter().for_each(|member| reach(member, rest, out));
        }
        (Value::Array(items), _) => items.iter().for_each(|item| reach(item, path, out)),
        _ => {}
    }
}

fn is_equal(value: &Value, operand: &Value) -> bool {
    !value.is_object()
        && !value.is_array()
        && (value == operand || order(value, operand) == Some(Ordering::Equal))
}

/// Floats suffice: no generated number is so close to an operand that they would round to the same.
fn order(value: &Value, operand: &Value) -> Option<Ordering> {
    match (value, operand) {
        (Value::Number(left), Value::Number(right)) => left.as_f64()?.partial_cmp(&right.as_f64()?),
        (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
        _ => None,
    }
}
