// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package secretsync

import (
	"cmp"
	"context"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/secretref"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
)

// configurationSource pins the names of copies that configurations of Gateways or Ingresses have: as long as one has a name, no other object is given that,
// whatever becomes of the Gateway or the Ingress (SEC-14). Where these are not served or not copied, it reports the certificates that have a copy: agents go
// on to serve them (SEC-18).
type configurationSource struct {
	name           string
	namespace      string // of the copies
	counts         func(*envoy.Object) bool
	isLeft         bool   // nothing writes the configurations anew
	findsDefault   bool   // the configurations are those of Ingresses, and no option has a default Secret
	own            string // namespace of the configuration that Ingresses share
	names          *secretref.Names
	configurations configurationWatch
	meanings       *meanings // of all names that are pinned
	refer          *meanings // of these configurations
	follows        bool      // it follows the consents of these, for all sources
	log            *slog.Logger

	mu       sync.Mutex
	pinned   map[slim.Key]pinned
	many     map[string]int    // the names that are pinned, by namespace of the configurations
	seen     map[slim.Key]bool // those that Follow has shown, until all were
	reported map[string]bool   // namespaces with names that do not count
}

// pinned are the names that a configuration pins. isMore is whether it may have others: it has too many, or its namespace has. These are among all, which the
// store has as well.
type pinned struct {
	from   corev1.ObjectReference
	names  []string
	isMore bool
	all    envoy.SecretNames
	unpin  func() // those of all, nil where they are not pinned
}

// mostPinned is how many names the configurations of a namespace pin, but that of the operator, where no tenant writes: each needs a hundred bytes. It is three
// times what a Gateway and a ListenerSet have places for. Of what has more, names are found where the store has them.
const mostPinned = 25_000

// configurationWatch is a secretref.Watch of configurations.
type configurationWatch interface {
	Follow(ctx context.Context, changed func(stream.Change[envoy.Object]), synced ...func())
	Initial(ctx context.Context, limit time.Duration, each func(*envoy.Object))
	Complete() error
}

// left is a configuration where neither Gateways nor Ingresses are served: it may never have had a definition, which is no fault there.
type left envoy.Object

var leftKind = stream.Custom[left](v2.CiliumEnvoyConfigResource).OfKind("CiliumEnvoyConfig")

// leftWatch is a watch of these.
type leftWatch struct{ *secretref.Watch[left] }

// Follow implements configurationWatch.
func (w leftWatch) Follow(ctx context.Context, changed func(stream.Change[envoy.Object]), synced ...func()) {
	w.Watch.Follow(ctx, func(ch stream.Change[left]) {
		changed(stream.Change[envoy.Object]{Kind: ch.Kind, Key: ch.Key, Object: (*envoy.Object)(ch.Object)})
	}, synced...)
}

// Initial implements configurationWatch.
func (w leftWatch) Initial(ctx context.Context, limit time.Duration, each func(*envoy.Object)) {
	w.Watch.Initial(ctx, limit, func(c *left) { each((*envoy.Object)(c)) })
}

// configurationSources are those that are on. Others are nil.
type configurationSources struct {
	cell.Out

	OfGateways  secretref.Source `group:"references to secrets"`
	OfIngresses secretref.Source `group:"references to secrets"`
}

// sourceParams are what the sources need.
type sourceParams struct {
	cell.In

	Config      secretref.Config
	Envoy       envoy.Config
	Cluster     cluster.Config
	Names       *secretref.Names
	Permissions *k8s.Permissions
	Grants      stream.Resource[referenceGrant]
	Sets        stream.Resource[listenerSet]
	Log         *slog.Logger
}

func newConfigurationSources(p sourceParams, s stream.Resource[envoy.Object]) configurationSources {
	return p.sources(func() configurationWatch { return secretref.NewWatch(s, "spec").Optional() })
}

func newLeftSources(p sourceParams, s stream.Resource[left]) configurationSources {
	return p.sources(func() configurationWatch { return leftWatch{secretref.NewWatch(s, "spec").Optional()} })
}

func (p sourceParams) sources(newWatch func() configurationWatch) (out configurationSources) {
	c, e := p.Config, p.Envoy
	own := cmp.Or(p.Cluster.K8sNamespace, "kube-system")
	means := &meanings{own: own, names: p.Names}
	byDefault, hasDefault := e.DefaultSecret()
	if hasDefault {
		p.Names.AddDefault(secretref.Object{Kind: secretref.Secret, Key: slim.Key(byDefault)})
	}
	if secretref.OfIngresses(c, e, p.Cluster) {
		p.Names.KnowDefaults()
	}
	p.Names.LimitPins(means.mayBe)
	newSource := func(name, namespace string, isLeft bool, counts func(*envoy.Object) bool) *configurationSource {
		return &configurationSource{
			name: name, namespace: namespace, counts: counts, isLeft: isLeft, own: own, names: p.Names, configurations: newWatch(), meanings: means, refer: means, log: p.Log,
			pinned: map[slim.Key]pinned{}, many: map[string]int{}, reported: map[string]bool{},
		}
	}
	if namespace := e.GatewayAPISecretsNamespace; secretref.CopiesTo(namespace, c, e, p.Cluster) {
		s := newSource("configurations", namespace, secretref.KeptOfGateways(c, e, p.Cluster), isOfGateway)
		means.consents = newConsents(p.Permissions, secretref.NewWatch(p.Grants, "spec").Optional(), secretref.NewWatch(p.Sets, "spec").Optional())
		s.follows = true
		out.OfGateways = s
	}
	if namespace := e.IngressSecretsNamespace; secretref.CopiesTo(namespace, c, e, p.Cluster) {
		s := newSource("configurations-of-ingresses", namespace, secretref.KeptOfIngresses(c, e, p.Cluster), func(o *envoy.Object) bool { return isOfIngresses(o, own) })
		s.findsDefault = s.isLeft && !hasDefault
		s.refer = &meanings{own: own, names: p.Names} // Ingresses refer to nothing of other namespaces but the default Secret, whatever others let Gateways
		out.OfIngresses = s
	}
	return out
}

// meanings are what configurations may mean by the names of copies that they have: objects of their namespace, the default Secret of Ingresses, and what others
// let them refer to. Those of the operator's namespace, where no tenant writes, may mean any (SEC-22).
type meanings struct {
	own      string
	names    *secretref.Names // have the default Secret of Ingresses
	consents *consents        // nil where configurations of Gateways do not count
}

// mayBe reports whether configurations of a namespace may mean an object by a name, or some object if that is zero.
func (m *meanings) mayBe(by, name string, of secretref.Object) bool {
	switch {
	case by == m.own, !isForeign(by, name, of), m.names.MayBeDefault(name, of):
		return true
	case m.consents == nil:
		return false
	case of == (secretref.Object{}):
		return m.consents.letName(by, name)
	}
	return m.consents.letObject(by, of)
}

func isOfGateway(c *envoy.Object) bool { return c.Controller.Kind() == "Gateway" }

// isOfIngresses reports whether a configuration is that of an Ingress, or one without a controller in the namespace where Ingresses share one.
func isOfIngresses(c *envoy.Object, own string) bool {
	return c.Controller.Kind() == "Ingress" || c.Controller.IsZero() && c.Namespace.String() == own
}

// Name implements secretref.Source.
func (s *configurationSource) Name() string { return s.name }

// Namespace implements secretref.Source.
func (s *configurationSource) Namespace() string { return s.namespace }

// Kind implements secretref.Source.
func (*configurationSource) Kind() secretref.Kind { return secretref.Secret }

// Complete implements secretref.Source.
func (s *configurationSource) Complete() error {
	if !s.isLeft {
		return nil
	}
	return s.configurations.Complete()
}

// Follow implements secretref.Source.
func (s *configurationSource) Follow(ctx context.Context, r secretref.Recorder) {
	s.mu.Lock()
	s.seen = map[slim.Key]bool{}
	s.mu.Unlock()
	follows := []func(context.Context){func(ctx context.Context) {
		s.configurations.Follow(ctx, func(ch stream.Change[envoy.Object]) { s.changed(ch, r) }, func() { s.shown(r) })
	}}
	if c := s.meanings.consents; c != nil {
		c.listen(s.name, func(again bool) { s.recordAll(r, again) })
		if s.follows {
			follows = append(follows, c.follow)
		}
	}
	reconcile.RunTogether(ctx, follows)
}

// shown is called when Follow has shown all configurations.
func (s *configurationSource) shown(r secretref.Recorder) {
	s.unpinOthers()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.findsDefault {
		return
	}
	s.findsDefault = false // those that come later were not left
	for _, of := range s.mostNamed() {
		s.names.AddDefault(of)
		r.Changed(of) // its copy is to show it
	}
	s.recordEach(r)
}

// mostNamed are the objects whose copies configurations of most other namespaces name, and of two at least: the default Secret of Ingresses is one of them, which
// neither an option nor the copy of an earlier release shows. A tenant has one namespace. The caller has the lock.
func (s *configurationSource) mostNamed() (all []secretref.Object) {
	in, last, most := map[secretref.Object]int{}, map[secretref.Object]string{}, 2
	for _, key := range slices.SortedFunc(maps.Keys(s.pinned), func(a, b slim.Key) int { return cmp.Compare(a.Namespace, b.Namespace) }) {
		if key.Namespace == s.own {
			continue // it names what is of all namespaces
		}
		for _, name := range s.pinned[key].names {
			of, isCopy := s.names.Owner(s.namespace, name)
			if isCopy && of.Kind == secretref.Secret && of.Namespace != key.Namespace && last[of] != key.Namespace {
				last[of] = key.Namespace
				in[of]++
			}
		}
	}
	for of, n := range in {
		if n > most {
			all, most = nil, n
		}
		if n == most {
			all = append(all, of)
		}
	}
	return all
}

// unpinOthers has those that PinAll had seen, and that went before Follow, pin nothing any more.
func (s *configurationSource) unpinOthers() {
	s.mu.Lock()
	gone := slices.DeleteFunc(slices.Collect(maps.Keys(s.pinned)), func(key slim.Key) bool { return s.seen == nil || s.seen[key] })
	s.seen = nil
	s.mu.Unlock()
	for _, key := range gone {
		s.pin(key, pinned{})
	}
}

// pinLimit is how long names wait for the configurations that exist: without them copies are made all the same.
const pinLimit = 5 * time.Second

// PinAll implements secretref.Pins.
func (s *configurationSource) PinAll(ctx context.Context) {
	s.configurations.Initial(ctx, pinLimit, func(c *envoy.Object) { s.pin(c.Key(), s.copyNames(c)) })
}

// changed records what a configuration names. One that cannot be decoded keeps what it had.
func (s *configurationSource) changed(ch stream.Change[envoy.Object], r secretref.Recorder) {
	s.mu.Lock()
	if s.seen != nil {
		s.seen[ch.Key] = true
	}
	s.mu.Unlock()
	c := ch.Object
	from := corev1.ObjectReference{
		APIVersion: v2.SchemeGroupVersion.String(), Kind: envoy.Objects.Name(), Namespace: c.Namespace.String(), Name: c.Name, UID: c.UID.API(),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case ch.Kind == stream.Delete:
		s.pinAs(ch.Key, pinned{})
		if s.isLeft {
			r.Set(from)
		}
	case !c.CannotDecode("spec"):
		has := s.copyNames(c)
		has.from = from
		s.pinAs(ch.Key, has)
		s.record(ch.Key, from, r)
	}
}

// recordAll records what all configurations name, where that may be something else since others let them. With again it was answered while that was not known,
// and what waits for a name is woken.
func (s *configurationSource) recordAll(r secretref.Recorder, again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recordEach(r)
	if !again {
		return
	}
	for key, has := range s.pinned {
		wakeOthers(key.Namespace, has.names, r)
	}
}

// recordEach records what each configuration names. The caller has the lock.
func (s *configurationSource) recordEach(r secretref.Recorder) {
	for key, has := range s.pinned {
		if has.from.Kind != "" { // before Follow has shown one that can be decoded, that is not known
			s.record(key, has.from, r)
		}
	}
}

// wakeOthers wakes the Secrets of other namespaces than a configuration's that may have its names as plain ones.
func wakeOthers(by string, names []string, r secretref.Recorder) {
	for _, name := range names {
		if !isForeign(by, name, secretref.Object{}) {
			continue
		}
		for namespace := range secretref.NamespacesOf(name) {
			r.Changed(secretref.Object{Kind: secretref.Secret, Key: slim.Key{Namespace: namespace, Name: name[len(namespace)+1:]}})
		}
	}
}

// record records what a configuration names, if nothing writes it anew. The caller has the lock.
func (s *configurationSource) record(of slim.Key, from corev1.ObjectReference, r secretref.Recorder) {
	has := s.pinned[of]
	s.report(of, has.names)
	switch {
	case !s.isLeft:
	case has.isMore:
		r.Set(from) // it may mean any copy of its namespace, not what it had before alone
		r.SetUnknown(from)
	default:
		r.Set(from, s.copied(of.Namespace, has.names)...)
	}
}

// report logs, once for each namespace, that names do not count. The caller has the lock.
func (s *configurationSource) report(of slim.Key, names []string) {
	if s.findsDefault || s.reported[of.Namespace] { // what the default Secret is may not be known yet
		return
	}
	i := slices.IndexFunc(names, func(name string) bool {
		has, _ := s.names.LastOwner(s.namespace, name)
		return !s.refer.mayBe(of.Namespace, name, has)
	})
	if i >= 0 {
		s.reported[of.Namespace] = true
		s.log.Warn("a CiliumEnvoyConfig names copies of what its namespace may not refer to: they do not stay for it, and their names are free for others",
			"configuration", of, "copy", names[i])
	}
}

// copyNames are the names of copies that a configuration has, if it counts.
func (s *configurationSource) copyNames(c *envoy.Object) (has pinned) {
	if c.CannotDecode("spec") || !s.counts(c) {
		return pinned{}
	}
	has.names = slices.Collect(s.copyNamesIn(c.Spec.Secrets))
	has.isMore, has.all = c.Spec.Secrets.IsCut(), c.Spec.Secrets
	return has
}

// copyNamesIn are those of names that are of the namespace of the copies, without it.
func (s *configurationSource) copyNamesIn(all envoy.SecretNames) iter.Seq[string] {
	return func(yield func(string) bool) {
		for name := range all.All() {
			if copyName, ours := strings.CutPrefix(name, s.namespace+"/"); ours && !yield(copyName) {
				return
			}
		}
	}
}

// pin replaces the names that a configuration pins. The one that Ingresses share has its names as long as a leader writes it, and
// those of the next one are given anew: it names Secrets of all namespaces, and any of these may be the one that a name without a copy means.
func (s *configurationSource) pin(of slim.Key, has pinned) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pinAs(of, has)
}

// pinAs is pin where the caller has the lock.
func (s *configurationSource) pinAs(of slim.Key, has pinned) {
	was := s.pinned[of]
	rest := mostPinned - (s.many[of.Namespace] - len(was.names))
	if of.Namespace != s.own && len(has.names) > rest {
		has.names, has.isMore = slices.Clone(has.names[:rest]), true
	}
	if !has.isMore {
		has.all = envoy.SecretNames{}
	}
	s.add(of.Namespace, &has)
	s.remove(of.Namespace, was)
	if s.pinned[of] = has; len(has.names) == 0 && !has.isMore {
		delete(s.pinned, of)
	}
}

// isShared reports whether the configuration that Ingresses share is of a namespace, and is written anew.
func (s *configurationSource) isShared(namespace string) bool { return !s.isLeft && namespace == s.own }

// add pins the names of a configuration of a namespace. The caller has the lock.
func (s *configurationSource) add(by string, has *pinned) {
	for _, name := range has.names {
		if s.isShared(by) {
			s.names.Keep(s.namespace, name)
		} else {
			s.names.Pin(s.namespace, name, by)
		}
	}
	if has.isMore && !s.isShared(by) { // what Ingresses share has certificates that they refer to
		all := has.all
		var isName func(string) bool
		if all.IsCut() {
			isName = func(name string) bool { return all.Has(s.namespace + "/" + name) }
		}
		has.unpin = s.names.PinRest(s.namespace, by, s.copyNamesIn(all), isName)
	}
	s.many[by] += len(has.names)
}

// remove unpins what add has pinned. The caller has the lock.
func (s *configurationSource) remove(by string, was pinned) {
	for _, name := range was.names {
		if s.isShared(by) {
			s.names.Unkeep(s.namespace, name)
		} else {
			s.names.Unpin(s.namespace, name, by)
		}
	}
	if was.unpin != nil {
		was.unpin()
	}
	if s.many[by] -= len(was.names); s.many[by] == 0 {
		delete(s.many, by)
	}
}

// copied are the objects whose copies have the names, and that a configuration of a namespace may mean.
func (s *configurationSource) copied(by string, names []string) (to []secretref.Object) {
	for _, name := range names {
		if of, isCopy := s.names.Owner(s.namespace, name); isCopy && s.refer.mayBe(by, name, of) {
			to = append(to, of)
		}
	}
	return to
}
