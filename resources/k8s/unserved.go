// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

// The API server drops fields that the installed definition does not have, without a word. Agents of one release read fields
// that definitions of another one lack, so both are written. Where a field is not stored, the definition is looked up: in
// the OpenAPI document of the version, which every user may read. What it lacks is no loss, and is left out from then on:
// else each comparison would find it missing, and write again.
const (
	// refreshInterval is how long a definition is taken to be as it was read.
	refreshInterval = 10 * time.Second
	// refreshTimeout is how long a write waits for it.
	refreshTimeout = 10 * time.Second
	// openAPILimit bounds a document: that of cilium.io/v2 has a megabyte.
	openAPILimit = 64 << 20
)

// withdrawn are fields that are written, and that the newest of the served releases has no more. Older definitions are replaced by
// those of this operator, which have all fields; newer ones stay. So a definition is looked up before such a field is
// written for the first time: otherwise each start would write it once more.
var withdrawn = map[schema.GroupKind][]fieldPath{
	{Group: v2.SchemeGroupVersion.Group, Kind: "CiliumNode"}: {{"status", "azure", "interfaces", "GatewayIP"}},
}

// hasWithdrawn reports whether an object has a field that may be withdrawn.
func hasWithdrawn(kind schema.GroupKind, object map[string]any) bool {
	return slices.ContainsFunc(withdrawn[kind], func(path fieldPath) bool { return hasField(object, path) })
}

// hasField reports whether a value, or one in a list of them, has a field.
func hasField(value any, path fieldPath) bool {
	if len(path) == 0 {
		return true
	}
	switch value := value.(type) {
	case map[string]any:
		field, has := value[path[0]]
		return has && hasField(field, path[1:])
	case []any:
		return slices.ContainsFunc(value, func(v any) bool { return hasField(v, path) })
	}
	return false
}

// unserved knows which fields the installed definitions lack, of those kinds that were looked up. It belongs to the process.
type unserved struct {
	log   *slog.Logger
	get   func(ctx context.Context, path string, most int64) (body []byte, status int, err error)
	every time.Duration
	busy  chan struct{} // holds a value while a definition is read

	mu    sync.Mutex
	known map[schema.GroupVersionKind]definition
}

// definition is one as it was read last.
type definition struct {
	at       time.Time // of the last attempt to read it, zero for none
	document string    // that it was in, by a hash; "" for none
	shape    *shape    // nil if it is not known
	reported []string  // fields that it lacks
	failed   bool      // the last attempt
}

func newUnserved(d *guardedTransport) *unserved {
	return &unserved{log: d.log, get: d.getUpTo, every: refreshInterval, busy: make(chan struct{}, 1), known: map[schema.GroupVersionKind]definition{}}
}

func (u *unserved) definition(kind schema.GroupVersionKind) definition {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.known[kind]
}

// mayLack reports whether the definition may lack a field of an object, as far as is known.
func (u *unserved) mayLack(kind schema.GroupVersionKind, object map[string]any) bool {
	is := u.definition(kind)
	if is.at.IsZero() {
		return hasWithdrawn(kind.GroupKind(), object)
	}
	return len(is.shape.lackedOf(object)) > 0
}

// without is what is sent of a kind without what the definition lacks, as far as it is known. It is sent itself if that is
// nothing. An object that shows such a field tells that the definition has it by now; before is nil for one that is not read.
func (u *unserved) without(ctx context.Context, kind schema.GroupVersionKind, before, sent map[string]any) (content map[string]any, less bool) {
	if !u.mayLack(kind, sent) {
		return sent, false
	}
	u.refresh(ctx, kind)
	if len(u.definition(kind).shape.lackedOf(before)) > 0 {
		return sent, false
	}
	return u.pruned(kind, sent)
}

// storable is what can be stored of what was sent. It is asked after something was not.
func (u *unserved) storable(ctx context.Context, kind schema.GroupVersionKind, sent map[string]any) map[string]any {
	u.refresh(ctx, kind)
	content, _ := u.pruned(kind, sent)
	return content
}

// pruned is an object without what the definition lacks.
func (u *unserved) pruned(kind schema.GroupVersionKind, object map[string]any) (content map[string]any, less bool) {
	s := u.definition(kind).shape
	lacks := s.lackedOf(object)
	if len(lacks) == 0 {
		return object, false
	}
	u.report(kind, lacks)
	return s.pruned(object), true
}

// report logs which fields are left out, each of them once.
func (u *unserved) report(kind schema.GroupVersionKind, lacks []string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	is := u.known[kind]
	for _, field := range lacks {
		if !slices.Contains(is.reported, field) {
			is.reported = append(is.reported, field)
			u.log.Info("the installed definition lacks a field, leaving it out", "kind", kind.Kind, "version", kind.Version, "field", field)
		}
	}
	u.known[kind] = is
}

// refresh reads the definition of a kind, unless that was done a moment ago.
func (u *unserved) refresh(ctx context.Context, kind schema.GroupVersionKind) {
	select {
	case u.busy <- struct{}{}:
		defer func() { <-u.busy }()
	case <-ctx.Done():
		return
	}
	before := u.definition(kind)
	if !before.at.IsZero() && time.Since(before.at) < u.every {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	read, err := u.read(bounded, kind, before.document)
	if err != nil && ctx.Err() != nil {
		return // the caller has no more time: that says nothing about the API server
	}
	if err != nil && !before.failed {
		u.log.Info("the installed definition cannot be looked up, what it lacks counts as not stored", "kind", kind.Kind, "version", kind.Version, "error", err)
	}
	u.record(kind, read, err)
}

// record records an attempt to read a definition. read is nil if it was not read, or is the same.
func (u *unserved) record(kind schema.GroupVersionKind, read *definition, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	is := u.known[kind]
	if read != nil {
		is = *read
	}
	is.at, is.failed = time.Now(), err != nil
	u.known[kind] = is
}

// read reads a definition if it is in another document than before, else it returns nil.
func (u *unserved) read(ctx context.Context, kind schema.GroupVersionKind, before string) (*definition, error) {
	const index = "/openapi/v3"
	text, err := u.page(ctx, index)
	if err != nil {
		return nil, err
	}
	var listed struct {
		Paths map[string]struct {
			URL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	if err := json.Unmarshal(text, &listed); err != nil {
		return nil, fmt.Errorf("decoding %s: %w", index, err)
	}
	name := "apis/" + kind.GroupVersion().String()
	url := listed.Paths[name].URL
	_, hash, _ := strings.Cut(url, "hash=")
	if url == "" || hash != "" && hash == before {
		return nil, nil
	}
	if text, err = u.page(ctx, index+"/"+name); err != nil {
		return nil, err
	}
	s, err := shapeIn(text, kind)
	if err != nil {
		return nil, err
	}
	return &definition{document: hash, shape: s}, nil
}

func (u *unserved) page(ctx context.Context, path string) ([]byte, error) {
	body, status, err := u.get(ctx, path, openAPILimit)
	switch {
	case err != nil:
		return nil, fmt.Errorf("GET %s: %w", path, err)
	case status != http.StatusOK:
		return nil, fmt.Errorf("GET %s answered %d %s", path, status, http.StatusText(status))
	}
	return body, nil
}
