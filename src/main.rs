fn main() { println!("{}", serde_json::to_string_pretty(&convoke::api::crds()).unwrap()); }
