// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spire

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/grpc/codes"

	"github.com/skep-operator/skep/resources/spire/internal/entryapi"
	"github.com/skep-operator/skep/resources/sweep"
)

// mostDeleted is how many entries are remembered that were deleted.
const mostDeleted = 100_000

// compareAll lists all entries. It returns what has none, and keeps what has one and should not, but for what is due anyway.
func (r *Registrar[K]) compareAll(ctx context.Context, due []K) (missing []K, err error) {
	at, listed, err := r.server.list(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.begin(ctx, listed); err != nil {
		return nil, err
	}
	r.at, r.unanswered, r.countedBy = at, false, r.server.link.generation()
	clear(r.late)
	keys := maps.Clone(r.at)
	for k := range r.desired.All() {
		if _, known := keys[k]; !known {
			keys[k] = nil
		}
	}
	all := compare(maps.Keys(keys), r.desired.State, r.at)
	decided := slices.Concat(due, slices.Collect(maps.Keys(r.refused)))
	r.stale, r.compared = r.ours(except(slices.Compact(keysOf(all.remove)), decided)), r.now()
	r.foreign = r.others(slices.Concat(decided, r.stale))
	r.metrics.Compared.Set(float64(r.compared.Unix()))
	if !all.none() {
		r.deps.Log.Info("registration entries differ from those that should exist", "entries", len(r.at), "missing", len(all.create), "stale", len(r.stale))
	}
	return all.create, nil
}

// others are the entries that belong to nothing known here, but for some that may be deleted. Where it is not known what there should be, there are none.
func (r *Registrar[K]) others(deletable []K) map[K]bool {
	all := map[K]bool{}
	if _, known := r.desired.Len(); !known {
		return all
	}
	for k := range r.at {
		if r.desired.State(k) != Wanted {
			all[k] = true
		}
	}
	for _, k := range deletable {
		delete(all, k)
	}
	return all
}

// forgetDone forgets of what was due that it is foreign or refused, if it is not any more.
func (r *Registrar[K]) forgetDone(due []K) {
	for _, k := range due {
		if r.foreign[k] && (len(r.at[k]) == 0 || r.desired.State(k) == Wanted) {
			delete(r.foreign, k)
		}
	}
	pending := map[K]bool{}
	for _, k := range compare(maps.Keys(r.refused), r.desired.State, r.at).keys() {
		pending[k] = true
	}
	maps.DeleteFunc(r.refused, func(k K, _ refusal) bool { return !pending[k] })
}

// ours are the entries that belong to nothing here, and are no other operator's: one that comes back after it was deleted is, and from then on
// none is deleted that a comparison finds.
func (r *Registrar[K]) ours(stale []K) []K {
	part := r.deps.Health.Child("stale")
	if i := slices.IndexFunc(stale, func(k K) bool { return r.deleted[k] }); i >= 0 && r.contested == "" && !r.deps.Keep {
		r.contested = r.server.kind.Path(stale[i])
		r.deps.Log.Warn("a registration entry is back after it was deleted: another operator keeps entries of the trust domain", "entry", r.contested)
	}
	switch {
	case r.contested != "":
		part.Degraded(fmt.Sprintf("the entry of %s is back after it was deleted, another operator keeps entries of the trust domain: "+
			"none is deleted that belongs to nothing here; give each cluster a cluster-id or a trust domain of its own, or set --mesh-auth-spire-prune=false", r.contested), nil)
		return nil
	case len(stale) > 0 && r.deps.Keep:
		part.OK(fmt.Sprintf("%d registration entries that belong to nothing here stay, by --mesh-auth-spire-prune=false", len(stale)))
		return nil
	case len(stale) == 0:
		part.OK("")
		r.held = false
	}
	return stale
}

// confirm returns what of the stale may be deleted: what the duty confirms, if that is no implausible share of the entries that there are to be, with those that are
// left to be created, and without those that are left to be deleted.
func (r *Registrar[K]) confirm(ctx context.Context, stale, left []K) ([]K, error) {
	confirmed, err := r.desired.Confirm(ctx, slices.Clone(stale))
	if err != nil {
		return nil, fmt.Errorf("confirming that %d entries should not exist: %w", len(stale), err)
	}
	for _, k := range except(slices.Clone(stale), confirmed) {
		if r.desired.State(k) != Wanted {
			r.foreign[k] = true
		}
	}
	limit, total := r.deps.Health.Child("stale"), len(r.at)
	for _, k := range left {
		switch {
		case len(r.at[k]) == 0:
			total++
		case r.desired.State(k) == Unwanted:
			total--
		}
	}
	if sweep.Implausible(len(confirmed), total, r.deps.MaxShare) {
		limit.Degraded(fmt.Sprintf("%d of %d registration entries should not exist, none is deleted: set --sweep-max-share=1 if they should be", len(confirmed), total), nil)
		if !r.held {
			r.deps.Log.Warn("so many registration entries should not exist that none is deleted: set --sweep-max-share=1 if they should be", "stale", len(confirmed), "entries", total)
		}
		r.held = true
		return nil, nil
	}
	r.held = false
	limit.OK("")
	if len(confirmed) > 0 && r.deps.Unnumbered {
		limit.OK(fmt.Sprintf("%d registration entries that belong to nothing here are deleted: if another cluster without a cluster-id has this trust domain, set --mesh-auth-spire-prune=false", len(confirmed)))
	}
	return confirmed, nil
}

// recordCreated records what became of a creation, and reports whether there is the entry. One that has existed already is as good.
func (r *Registrar[K]) recordCreated(k K, result entryapi.Result) (made bool) {
	path := r.server.kind.Path(k)
	switch {
	case result.Code != codes.OK && result.Code != codes.AlreadyExists:
		r.refuse(k, fmt.Errorf("creating the entry of %s: %s: %s", path, result.Code, result.Message))
	case result.Entry.ID == "" || result.Entry.SPIFFEID.Path != path:
		r.refuse(k, fmt.Errorf("creating the entry of %s: the server answers with entry %q of %s", path, result.Entry.ID, result.Entry.SPIFFEID))
	default:
		if result.Code == codes.OK {
			r.number.n++
		} else {
			r.number.unsure++
		}
		r.at[k] = []string{result.Entry.ID}
		delete(r.refused, k)
		delete(r.deleted, k)
		made = true
	}
	return made
}

// recordRemoved records what became of a deletion, and reports whether the entry is gone.
func (r *Registrar[K]) recordRemoved(removed removal[K], result entryapi.Result) (made bool) {
	k := removed.key
	if result.Code != codes.OK && result.Code != codes.NotFound {
		r.refuse(k, fmt.Errorf("deleting the entry of %s: %s: %s", r.server.kind.Path(k), result.Code, result.Message))
		return false
	}
	r.number.n--
	if r.at[k] = slices.DeleteFunc(r.at[k], func(id string) bool { return id == removed.entry }); len(r.at[k]) == 0 {
		delete(r.at, k)
		delete(r.refused, k)
		if len(r.deleted) < mostDeleted {
			r.deleted[k] = true
		}
	}
	return true
}

func (r *Registrar[K]) refuse(k K, err error) {
	if len(r.refused) == 0 {
		r.deps.Log.Warn("the SPIRE server refuses an entry, retrying", "error", err)
	}
	r.refused[k] = r.refused[k].again(err, r.now())
}

// report sets metrics and health by entries that are known.
func (r *Registrar[K]) report() {
	if n, known := r.desired.Len(); known {
		r.metrics.Entries.WithLabelValues(StateDesired).Set(float64(n))
	}
	r.metrics.Entries.WithLabelValues(StatePresent).Set(float64(len(r.at) - len(r.foreign)))
	r.metrics.Entries.WithLabelValues(StateForeign).Set(float64(len(r.foreign)))
	r.metrics.Entries.WithLabelValues(StateRefused).Set(float64(len(r.refused)))
	part := r.deps.Health.Child("entries")
	for k, f := range r.refused {
		part.Degraded(fmt.Sprintf("the SPIRE server refuses %d entries, that of %s among them", len(r.refused), r.server.kind.Path(k)), f.err)
		return
	}
	part.OK("")
}
