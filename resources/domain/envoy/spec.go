// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/utils/lru"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

func rawResource(text json.RawMessage) runtime.RawExtension { return runtime.RawExtension{Raw: text} }

// Digest is equal for specs that mean the same: the order of keys and white space do not count. It is comparable with ==.
type Digest [sha256.Size]byte

// String is the digest in hexadecimal digits.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// MaxSize is the size of a spec that is written at most. API servers and etcd refuse objects of 1.5 MiB.
const MaxSize = 1400 << 10

// Encoded is a spec as it is written.
type Encoded struct {
	JSON   json.RawMessage
	Digest Digest
}

// TooLargeError says that a spec is larger than MaxSize.
type TooLargeError struct {
	Size int
	// AtLeast says that it is larger than that: it was not translated to its end.
	AtLeast bool
}

func (e *TooLargeError) Error() string {
	if e.AtLeast {
		return fmt.Sprintf("the configuration for Envoy would have more than %d bytes, and an object may have %d: use fewer routes, or divide them", e.Size, MaxSize)
	}
	return fmt.Sprintf("the configuration for Envoy has %d bytes, more than the %d that an object may have: use fewer routes, or divide them", e.Size, MaxSize)
}

// Encode returns a spec as it is written, or a TooLargeError. Its resources are those of a translation.
func Encode(spec v2.CiliumEnvoyConfigSpec) (Encoded, error) {
	text, err := encodeSpec(spec)
	if err != nil {
		return Encoded{}, fmt.Errorf("encoding the configuration for Envoy: %w", err)
	}
	if len(text) > MaxSize {
		return Encoded{}, &TooLargeError{Size: len(text)}
	}
	digest := digestOfCanonical(text)
	canonicals.Add(Digest(sha256.Sum256(text)), digest)
	return Encoded{text, digest}, nil
}

// encodeSpec is canonical JSON. The resources are so already, and are most of it.
func encodeSpec(spec v2.CiliumEnvoyConfigSpec) (json.RawMessage, error) {
	resources := make([]json.RawMessage, 0, len(spec.Resources))
	for _, r := range spec.Resources {
		resources = append(resources, r.Raw)
	}
	spec.Resources = nil
	text, err := marshal(spec)
	if err != nil {
		return nil, err
	}
	if text, err = canonical(text); err != nil || len(resources) == 0 {
		return text, err
	}
	return withList(text, "resources", resources)
}

// digestOfCanonical is DigestOf for canonical JSON, of which services are the last key, and the listener the first one of each.
func digestOfCanonical(text []byte) (d Digest) {
	services := max(0, bytes.LastIndex(text, []byte(`"services":[`)))
	h := sha256.New()
	h.Write(text[:services])
	h.Write(bytes.ReplaceAll(text[services:], []byte(`"listener":"",`), nil))
	return Digest(h.Sum(nil))
}

// canonicals are the digests of canonical texts, by their sums: most that the API server sends were written here.
var canonicals = lru.New(1024)

// DigestOf is the digest of a spec as the API server has it.
func DigestOf(text []byte) (Digest, error) {
	asIs := Digest(sha256.Sum256(text))
	if known, ok := canonicals.Get(asIs); ok {
		return known.(Digest), nil
	}
	var spec any
	if err := utiljson.Unmarshal(text, &spec); err != nil {
		return Digest{}, err
	}
	normalize(spec)
	sorted, err := marshal(spec)
	if err != nil {
		return Digest{}, err
	}
	return sha256.Sum256(sorted), nil
}

// normalize leaves out what originals write and what means nothing: empty names of listeners, which mean the first one as none does; a
// port that is named again; and empty route tables that no listener refers to.
func normalize(spec any) {
	fields, _ := spec.(map[string]any)
	services, _ := fields["services"].([]any)
	for _, item := range services {
		s, ok := item.(map[string]any)
		if !ok {
			continue
		}
		if s["listener"] == "" {
			delete(s, "listener")
		}
		if ports, ok := s["ports"].([]any); ok {
			s["ports"] = withoutRepeated(ports)
		}
	}
	if resources, ok := fields["resources"].([]any); ok {
		named := map[string]bool{}
		addTables(named, resources)
		fields["resources"] = slices.DeleteFunc(resources, func(r any) bool {
			table, isTable := emptyTable(r)
			return isTable && !named[table]
		})
	}
}

// withoutRepeated are sorted numbers, each once.
func withoutRepeated(all []any) (found []any) {
	for i, n := range all {
		if i == 0 || n != all[i-1] {
			found = append(found, n)
		}
	}
	return found
}

// emptyTable is the name of a route table without hosts.
func emptyTable(resource any) (name string, ok bool) {
	r, _ := resource.(map[string]any)
	hosts, _ := r["virtualHosts"].([]any)
	name, _ = r["name"].(string)
	return name, r["@type"] == "type.googleapis.com/envoy.config.route.v3.RouteConfiguration" && len(hosts) == 0
}

// addTables adds the names of route tables to which a part of a resource refers.
func addTables(named map[string]bool, part any) {
	switch part := part.(type) {
	case []any:
		for _, item := range part {
			addTables(named, item)
		}
	case map[string]any:
		if table, ok := part["routeConfigName"].(string); ok {
			named[table] = true
		}
		for _, value := range part {
			addTables(named, value)
		}
	}
}
