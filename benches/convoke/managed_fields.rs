//! (pure) What one field manager has applied of an object: the object as it was sent, without what the API server, its
//! defaults and other writers have added.

use serde_json::{Map, Value};

/// The object as that manager sent it with its last server-side apply, told by `metadata.managedFields`; `None` when it
/// sent none. Kind, version and name are in it, because an apply needs them.
pub fn applied_by(manager: &str, live: &Value) -> Option<Value> {
    let entries = live.pointer("/metadata/managedFields")?.as_array()?;
    let own = entries.iter().find(|entry| {
        entry["manager"] == manager
            && entry["operation"] == "Apply"
            && entry.get("subresource").is_none_or(|subresource| subresource == "")
    })?;
    let mut object = part(live, &own["fieldsV1"]);
    for place in ["apiVersion", "kind"] {
        object[place] = live[place].clone();
    }
    object["metadata"]["name"] = live.pointer("/metadata/name")?.clone();
    Some(object)
}

/// The part of a value that these fields name. `f:` is a field, `k:` an item of a list by its keys, `v:` an item by
/// its value, `.` the thing itself. Whoever names nothing inside owns the whole.
fn part(live: &Value, fields: &Value) -> Value {
    let inside: Vec<_> =
        fields.as_object().into_iter().flatten().filter(|(name, _)| *name != ".").collect();
    match live {
        Value::Object(map) if !inside.is_empty() => {
            let mut found = Map::new();
            for (name, fields) in inside {
                let named = name.strip_prefix("f:").and_then(|name| map.get_key_value(name));
                if let Some((name, value)) = named {
                    found.insert(name.clone(), part(value, fields));
                }
            }
            Value::Object(found)
        }
        // In the order in which they are.
        Value::Array(items) if !inside.is_empty() => items
            .iter()
            .filter_map(|item| {
                let (_, fields) = inside.iter().find(|(name, _)| is_item(name, item))?;
                Some(part(item, fields))
            })
            .collect(),
        whole => whole.clone(),
    }
}

fn is_item(name: &str, item: &Value) -> bool {
    let Some((kind, text)) = name.split_once(':') else { return false };
    match (kind, serde_json::from_str::<Value>(text)) {
        ("k", Ok(Value::Object(keys))) => {
            keys.iter().all(|(key, value)| item.get(key) == Some(value))
        }
        ("v", Ok(value)) => *item == value,
        _ => false,
    }
}
