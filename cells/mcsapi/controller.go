// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package mcsapi

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/clustermesh"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/job"
)

// controller brings the ServiceImport and the derived Service of each name to their desired state. A key is the name that
// the Service has in all clusters.
type controller struct {
	params
	exports  *stream.Store[serviceExport]
	imports  *stream.Store[serviceImport]
	services *stream.Store[service]
	spaces   *stream.Store[slim.Namespace]
	copies   *stream.Store[sliceCopy]
	slices   reconcile.OnDemand[endpointSlice]
	began    time.Time
	fresh    reconcile.Fresh

	admission *admission
	occupied  reconcile.Occupied

	mu        sync.Mutex
	names     map[slim.Key]slim.Key  // by the key of the derived Service
	refused   map[slim.Key]string    // why there is no derived Service, by name
	unwritten map[slim.Key]string    // why some EndpointSlices have no copies, by name
	emptied   map[slim.Key]time.Time // since when Kubernetes has no endpoints for a derived Service that is to lose its selector
	enqueue   reconcile.Enqueue      // nil while remote clusters are not followed
}

type params struct {
	cell.In

	Config      Config
	Deps        reconcile.Deps
	Cluster     cluster.Config
	Mesh        *clustermesh.Mesh `optional:"true"`
	Exports     stream.Resource[serviceExport]
	Imports     stream.Resource[serviceImport]
	Services    stream.Resource[service]
	Namespaces  stream.Resource[slim.Namespace]
	Copies      stream.Resource[sliceCopy]
	Client      k8s.Client
	Permissions *k8s.Permissions
	Events      *k8s.Events
	Metrics     *mcsMetrics
	Log         *slog.Logger
}

func newController(p params) *controller {
	system := systemNamespaces(p.Cluster)
	if p.Config.ClusterMeshMCSAPISystemNamespaces {
		system = nil
	}
	return &controller{
		params: p, began: time.Now(), admission: newAdmission(p.Config.ClusterMeshMCSAPIMaxImports, system),
		names: map[slim.Key]slim.Key{}, refused: map[slim.Key]string{}, unwritten: map[slim.Key]string{}, emptied: map[slim.Key]time.Time{},
	}
}

// Open is called before anything is watched.
func (c *controller) Open(ctx context.Context) (err error) {
	c.Metrics.reset()
	if c.exports, err = c.Exports.Store(ctx); err != nil {
		return err
	}
	if c.imports, err = c.Imports.Store(ctx); err != nil {
		return err
	}
	if c.services, err = c.Services.Store(ctx); err != nil {
		return err
	}
	if c.spaces, err = c.Namespaces.Store(ctx); err != nil {
		return err
	}
	c.copies, err = c.Copies.Store(ctx)
	return err
}

func (*controller) exportChanged(ch stream.Change[serviceExport]) []slim.Key {
	return []slim.Key{ch.Key}
}

// serviceChanged is the name of a Service that is exported or imported, or that has the name of a derived one.
func (c *controller) serviceChanged(ch stream.Change[service]) []slim.Key {
	var keys []slim.Key
	_, isExported := c.exports.Get(ch.Key)
	_, isImported := c.imports.Get(ch.Key)
	if isExported || isImported {
		keys = append(keys, ch.Key)
	}
	if !strings.HasPrefix(ch.Key.Name, derivedPrefix) {
		return keys
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	of, known := c.names[ch.Key]
	if labelled := (slim.Key{Namespace: ch.Key.Namespace, Name: ch.Object.Labels.Get(mcsv1alpha1.LabelServiceName)}); !known && derivedKey(labelled) == ch.Key {
		of, known = labelled, true
	}
	if known {
		keys = append(keys, of)
	}
	return keys
}

// namespaceChanged is what is exported and imported in a Namespace.
func (c *controller) namespaceChanged(ch stream.Change[slim.Namespace]) (keys []slim.Key) {
	for e := range stream.ByIndex(c.exports, exportsIn, ch.Key.Name) {
		keys = append(keys, e.Key())
	}
	for i := range stream.ByIndex(c.imports, importsIn, ch.Key.Name) {
		keys = append(keys, i.Key())
	}
	if c.Mesh == nil {
		return keys
	}
	for key := range c.Mesh.ServiceExports.Keys() {
		if key.Namespace == ch.Key.Name {
			keys = append(keys, key)
		}
	}
	return keys
}

// followClusters reconciles what remote clusters export.
func (c *controller) followClusters(ctx context.Context, enqueue reconcile.Enqueue) {
	if c.Mesh == nil {
		<-ctx.Done()
		return
	}
	c.mu.Lock()
	c.enqueue = enqueue
	c.mu.Unlock()
	stop := c.Mesh.ServiceExports.Observe(func(ch clustermesh.Change) {
		trigger := k8s.Trigger{Kind: "RemoteCluster", Name: ch.Cluster}
		if ch.Key == (slim.Key{}) {
			c.enqueueAll(enqueue, trigger)
			return
		}
		enqueue(ch.Key, trigger)
	})
	defer stop()
	for { // what was read before, and clusters that are gone
		if _, known := c.Mesh.Clusters(); known {
			break
		}
		if !job.Sleep(ctx, 50*time.Millisecond) {
			return
		}
	}
	c.enqueueAll(enqueue)
	<-ctx.Done()
}

// confirmObjects has objects be deleted once all that they follow from in this cluster is seen as it was when the term began.
func (c *controller) confirmObjects(ctx context.Context, enqueue reconcile.Enqueue) {
	if c.fresh.Await(ctx, c.Deps, c.Exports, c.Imports, c.Services, c.Namespaces) {
		c.enqueueAll(enqueue)
	}
}

// enqueueAll reconciles all names, of this cluster and of remote ones.
func (c *controller) enqueueAll(enqueue reconcile.Enqueue, triggers ...k8s.Trigger) {
	for e := range c.exports.All() {
		enqueue(e.Key(), triggers...)
	}
	for i := range c.imports.All() {
		enqueue(i.Key(), triggers...)
	}
	if c.Mesh == nil {
		return
	}
	for key := range c.Mesh.ServiceExports.Keys() {
		enqueue(key, triggers...)
	}
}

// undecodedRetry is how often a name is reconciled while an object of it cannot be decoded: there is no change when that is
// deleted.
const undecodedRetry = time.Minute

// Why nothing is written.
const (
	isHidden   = "none: the ServiceExport, the ServiceImport, a Service or the Namespace cannot be decoded, or is too large"
	isUnread   = "waits: the remote clusters are not known yet"
	isDeleting = "waits: the ServiceImport or the derived Service is being deleted"
	isNowhere  = "none: the namespace does not exist in this cluster"
	isExcluded = "none: the Namespace is not global, so that there is no derived Service"
	isLeftOut  = "none: the exports of the name are left out, by a bound or in a namespace of the system"
	isStale    = "none yet: what it follows from may have changed while another replica led"
)

// Reconcile brings the objects of a name to their desired state.
func (c *controller) Reconcile(ctx context.Context, key slim.Key) (reconcile.Result, error) {
	derived := derivedKey(key)
	c.setName(derived, key)
	if c.hidesAny(key, derived) {
		return reconcile.Result{Reason: isHidden, RequeueAfter: undecodedRetry}, c.withdraw(ctx, c.withdrawn(key, derived))
	}
	s, known := c.state(key, derived)
	if !known {
		return reconcile.Result{Reason: isUnread}, nil
	}
	c.Metrics.report(s)
	if s.imported == nil && s.export == nil {
		defer c.forget(s)
	}
	return c.bring(ctx, s)
}

// setName records the name that a derived Service is of, which its own name does not have.
func (c *controller) setName(derived, of slim.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.names[derived] = of
}

// forget drops what is kept of a name that has neither a ServiceExport nor a ServiceImport.
func (c *controller) forget(s *state) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(s.remote) == 0 && s.derived == nil { // of what is left out nothing is kept either
		delete(c.names, derivedKey(s.key))
	}
	delete(c.refused, s.key)
	delete(c.unwritten, s.key)
	delete(c.emptied, s.key)
	c.occupied.Keep(s.key, nil)
}

// state is what is known of a name. It is not known while the remote clusters are not.
func (c *controller) state(key, derived slim.Key) (s *state, known bool) {
	s = &state{key: key, cluster: c.Cluster.ClusterName, release: c.Cluster.Release, families: familiesOf(c.Cluster), rules: newRules(c.Config, c.Cluster)}
	s.export, _ = c.exports.Get(key)
	s.imported, _ = c.imports.Get(key)
	s.service, _ = c.services.Get(key)
	s.derived, _ = c.services.Get(derived)
	s.isLocal = c.isLocal(key.Namespace)
	if !s.isLocal {
		s.published = exportOf(s.export, s.service, s.cluster, s.release)
	}
	if s.isStale = !c.fresh.Is(); s.mayBeExported() {
		s.unknown = append(s.unknown, s.cluster)
	}
	s.noCopies = c.deniesCopies(s)
	s.local = c.localSlices(s)
	if c.Mesh == nil {
		return s, true
	}
	clusters, known := c.Mesh.Clusters()
	var all []*clustermesh.ServiceExport
	for _, name := range clusters {
		switch e, state := c.Mesh.ServiceExports.Get(name, key); state {
		case clustermesh.Present:
			all = append(all, e)
		case clustermesh.Unknown:
			s.unknown = append(s.unknown, name)
		}
	}
	if known {
		s.remote = c.admitted(s, all)
	}
	return s, known
}

// bring writes what differs: the ServiceImport first, as the derived Service has it as an owner, and statuses last. After an
// object is created or deleted, the watch has the name reconciled again.
func (c *controller) bring(ctx context.Context, s *state) (reconcile.Result, error) {
	p := s.planImport()
	switch {
	case s.imported != nil && !s.imported.DeletionTimestamp.IsZero(), s.derived != nil && !s.derived.DeletionTimestamp.IsZero():
		return reconcile.Result{Reason: isDeleting}, nil
	case !c.hasNamespace(s.key.Namespace), p.verb == create && c.isTerminating(s.key.Namespace):
		return reconcile.Result{Reason: isNowhere}, nil
	case p.verb == create:
		return reconcile.Result{}, c.createImport(ctx, s, p)
	case p.verb == remove:
		return reconcile.Result{}, c.deleteImport(ctx, s)
	}
	if s.published != nil && c.awaitsRole() { // which says whether endpoints are copied
		return reconcile.Result{RequeueAfter: rolePause}, nil
	}
	pause := c.awaitEmpty(s)
	if s.isStale && s.withdraws(s.planDerived(s.desired(p.spec))) {
		return reconcile.Result{Reason: isStale}, nil
	}
	refused, goesOn, err := c.bringDerived(ctx, s, p)
	if err != nil || !goesOn {
		return reconcile.Result{}, err
	}
	if s.imported != nil {
		err = c.updateImport(ctx, s, p)
	}
	result := reconcile.Result{RequeueAfter: pause}
	switch {
	case err == nil && c.awaitsRole():
		result.RequeueAfter = rolePause
	case err == nil:
		err = errors.Join(c.bringSlices(ctx, s, s.desired(p.spec)), s.withoutPermission(c.updateStatus(ctx, s, p, refused)))
	}
	if s.denied && result.RequeueAfter == 0 && c.Deps.Plan == nil {
		result.RequeueAfter = deniedRetry
	}
	if s.again > 0 && c.Deps.Plan == nil {
		result.RequeueAfter = sooner(result.RequeueAfter, s.again)
	}
	switch {
	case refused.text != "":
		result.Reason = isRefused
	case len(s.occupied) > 0:
		result.Reason = isOccupied
	case s.isLocal:
		result.Reason = isExcluded
	case s.leftOut && len(s.remote) == 0:
		result.Reason = isLeftOut
	}
	return result, err
}

// What needs optional permissions is not written before the role was read, which takes some milliseconds; where it cannot be
// read it is tried.
const (
	roleLimit = 10 * time.Second
	rolePause = 100 * time.Millisecond
)

// awaitsRole reports whether it is not known yet what the role allows.
func (c *controller) awaitsRole() bool {
	return !c.Permissions.Known() && time.Since(c.began) < roleLimit
}

// withoutPermission is the error of a write that the duty does without where the role does not allow it: a queue would keep
// all else of the name waiting for the permission.
func (s *state) withoutPermission(err error) error {
	if errors.As(err, new(*k8s.PermissionError)) {
		s.denied = true
		return nil
	}
	return err
}

// denies reports whether the role does not allow a write that the duty does without.
func (c *controller) denies(s *state, verb string, ref k8s.Ref) bool {
	denied := c.Permissions.Denies(verb, ref)
	s.denied = s.denied || denied
	return denied
}

// deniedRetry is how often a name is reconciled of which something is not written as the role does not allow it: the role may
// be changed, and an answer about it may have been wrong.
const deniedRetry = time.Minute

// hasNamespace reports whether a Namespace is known, and with it whether it is global.
func (c *controller) hasNamespace(name string) bool {
	_, exists := c.spaces.Get(slim.Key{Name: name})
	return exists
}

// isTerminating reports whether objects cannot be created in a Namespace any more.
func (c *controller) isTerminating(name string) bool {
	n, exists := c.spaces.Get(slim.Key{Name: name})
	return exists && !n.DeletionTimestamp.IsZero()
}

// isRefused is why a derived Service is not written.
const isRefused = "none: the derived Service cannot be written; an Event and the ServiceExport say why"

// report reports why there is no derived Service, as an Event and in the log when it is new.
func (c *controller) report(s *state, refused string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refused[s.key] == refused {
		return
	}
	if c.refused[s.key] = refused; refused == "" {
		delete(c.refused, s.key)
		return
	}
	c.Log.Warn("no derived Service is written", "name", s.key.String(), "problem", refused)
	c.Events.Warning(s.about(), "DerivedServiceRefused", refused)
}

// isOwned reports whether a Service with the name of the derived one is that.
func (s *state) isOwned() bool { return s.derived == nil || s.derived.isDerived(s.key) }

// equalSpecs reports whether a ServiceImport has a spec, addresses aside.
func equalSpecs(is, want mcsv1alpha1.ServiceImportSpec) bool {
	return is.Type == want.Type && is.SessionAffinity == want.SessionAffinity && sameConfig(is.SessionAffinityConfig, want.SessionAffinityConfig) &&
		slices.Equal(is.IPFamilies, want.IPFamilies) && policyOf(is.InternalTrafficPolicy) == policyOf(want.InternalTrafficPolicy) &&
		reflect.DeepEqual(is.TrafficDistribution, want.TrafficDistribution) &&
		slices.EqualFunc(is.Ports, want.Ports, sameImportPort)
}
