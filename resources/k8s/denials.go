// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skep-operator/skep/runtime/graph"
	"github.com/skep-operator/skep/runtime/health"
)

// PermissionError is a request that the role does not allow. It holds for all objects
// of the resource, and a retry is of no use before Granted.
type PermissionError struct {
	Permission string          // update ciliumnodes.cilium.io/status
	Granted    <-chan struct{} // closed when the role allows it
	Err        error           // of the API server, Forbidden
}

func (e *PermissionError) Error() string {
	return fmt.Sprintf("the role lacks %s, waiting until it is granted: %v", e.Permission, e.Err)
}

// Unwrap returns the API server's error.
func (e *PermissionError) Unwrap() error { return e.Err }

// reviewPause is for how long an answer of what the role allows serves further refusals.
const reviewPause = 5 * time.Second

// denials are the permissions that requests were refused for.
type denials struct {
	asking sync.Mutex // one question at a time: it may answer the next
	asked  time.Time  // when the last one was answered
	mu     sync.Mutex // never held during a request
	role   *roleCheck // nil before the start
	lacked map[permission]*denial
}

// denial is a permission that a request was refused for.
type denial struct {
	want    permission // of the request: where rules name objects, its name counts
	granted chan struct{}
	*PermissionError
}

// waiting returns the error of an earlier request that the role did not allow, for a
// cluster-scoped resource. In namespaces roles may differ.
func (p *Permissions) waiting(verb string, ref Ref) error {
	if ref.Namespace != "" {
		return nil
	}
	if d := p.denials.of(anyObject(verb, ref)); d != nil {
		return d.PermissionError
	}
	return nil
}

func anyObject(verb string, ref Ref) permission {
	ref.Name = ""
	return permissionOf(verb, ref)
}

func (d *denials) of(key permission) *denial {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lacked[key]
}

// follow has refusals looked up in the role.
func (d *denials) follow(r *roleCheck) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.role, d.lacked = r, map[permission]*denial{}
}

// refused returns a PermissionError for a refusal of the role. An admission webhook
// refuses single objects: then it returns err.
func (p *Permissions) refused(ctx context.Context, verb string, ref Ref, err error) error {
	d := &p.denials
	d.asking.Lock()
	defer d.asking.Unlock()
	d.mu.Lock()
	role := d.role
	d.mu.Unlock()
	key, want := anyObject(verb, ref), permissionOf(verb, ref)
	if known := d.of(key); known != nil {
		return known.PermissionError
	}
	if role == nil {
		return err
	}
	if time.Since(d.asked) > reviewPause {
		if readErr := role.permissions.read(ctx, role.api); readErr != nil {
			return err
		}
		d.asked = time.Now()
	}
	if lacks, askErr := role.permissions.lacks(ctx, role.api, want); !lacks || askErr != nil {
		return err
	}
	granted := make(chan struct{})
	lack := &PermissionError{key.String(), granted, err}
	d.mu.Lock()
	d.lacked[key] = &denial{want, granted, lack}
	d.mu.Unlock()
	role.log.Warn("the role lacks a permission, what needs it waits until it is granted", "missing", lack.Permission, "error", err)
	return lack
}

// grant ends the denials of what the role allows by now.
func (d *denials) grant(ctx context.Context) error {
	d.asking.Lock()
	defer d.asking.Unlock()
	d.mu.Lock()
	role, lacked := d.role, maps.Clone(d.lacked)
	d.mu.Unlock()
	if len(lacked) == 0 {
		return nil
	}
	if err := role.permissions.read(ctx, role.api); err != nil {
		return err
	}
	for key, lack := range lacked {
		lacks, err := role.permissions.lacks(ctx, role.api, lack.want)
		if err != nil {
			return err
		}
		if lacks {
			continue
		}
		d.mu.Lock()
		delete(d.lacked, key)
		d.mu.Unlock()
		close(lack.granted)
		role.log.Info("the role has got a permission that was missing", "permission", lack.Permission)
	}
	return nil
}

// roleCheckInterval is how often the API server is asked what the role allows, as long
// as something is missing.
const roleCheckInterval = 15 * time.Second

// roleCheck compares what the role allows with what modules need, and with what was
// refused.
type roleCheck struct {
	permissions *Permissions
	api         *reviews
	graph       graph.Source
	tree        *health.Tree
	log         *slog.Logger

	mu      sync.Mutex
	lacking map[string]string // by module
}

func newRoleCheck(c Client, p *Permissions, g graph.Source, tree *health.Tree, log *slog.Logger) (*roleCheck, error) {
	api, err := newReviews(c.RESTConfig())
	if err != nil {
		return nil, err
	}
	r := &roleCheck{permissions: p, api: api, graph: g, tree: tree, log: log, lacking: map[string]string{}}
	p.denials.follow(r)
	return r, nil
}

// check is the first comparison: each module that lacks something is degraded, and
// named in one line.
func (r *roleCheck) check(ctx context.Context) error {
	if err := r.permissions.read(ctx, r.api); err != nil {
		return err
	}
	return r.compare(ctx)
}

// again is a further comparison, of what was missing at the last one.
func (r *roleCheck) again(ctx context.Context) error {
	if err := r.permissions.denials.grant(ctx); err != nil {
		return err
	}
	r.mu.Lock()
	lacks := len(r.lacking) > 0
	r.mu.Unlock()
	if !lacks {
		return nil
	}
	return r.check(ctx)
}

// compare reports what modules lack.
func (r *roleCheck) compare(ctx context.Context) error {
	lacking := map[string]string{}
	for _, m := range r.graph().Modules {
		if !m.Enabled {
			continue
		}
		missing, err := r.permissions.missing(ctx, r.api, rulesOf(m).Required)
		if err != nil {
			return err
		}
		if len(missing) > 0 {
			lacking[m.ID] = strings.Join(missing, ", ")
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.lacking
	r.lacking = lacking
	for _, id := range slices.Sorted(maps.Keys(lacking)) {
		if lacking[id] == before[id] {
			continue
		}
		r.tree.Reporter(id).Child("permissions").Degraded("the role lacks "+lacking[id], nil)
		r.log.Warn("the role lacks permissions; what needs them does not work until it is given them", "module", id, "missing", lacking[id])
	}
	for _, id := range slices.Sorted(maps.Keys(before)) {
		if lacking[id] == "" {
			r.tree.Reporter(id).Child("permissions").Remove()
			r.log.Info("the role has got all permissions that a module needs", "module", id)
		}
	}
	return nil
}
