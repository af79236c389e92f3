// Manifests prints the objects of YAML files as one JSON array: what scripts/lib/tekton.py applies is read without a
// YAML library.
//
//	manifests VERSION FILE...
//
// Where the files say "devel", Tekton's release says its version (tekton/publish.yaml in its module), and so does this.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/util/yaml"
)

// objects reads all objects of one file.
func objects(path, version string) ([]map[string]any, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	released := strings.ReplaceAll(string(text), `: "devel"`, fmt.Sprintf(": %q", version))
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(released), 4096)
	var found []map[string]any
	for {
		var object map[string]any
		err := decoder.Decode(&object)
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		// A document may be only a comment.
		if len(object) > 0 {
			found = append(found, object)
		}
	}
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: manifests VERSION FILE...")
		os.Exit(2)
	}
	all := []map[string]any{}
	for _, path := range os.Args[2:] {
		found, err := objects(path, os.Args[1])
		if err != nil {
			fmt.Fprintln(os.Stderr, "error:", err)
			os.Exit(1)
		}
		all = append(all, found...)
	}
	if err := json.NewEncoder(os.Stdout).Encode(all); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}
