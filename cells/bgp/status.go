// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package bgp

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/resources/api"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// findConditions finds out which kinds have a status by their installed definitions. Older definitions have none.
func (c *controller) findConditions(ctx context.Context) error {
	c.conditions = map[string]bool{}
	for _, resource := range []schema.GroupVersionResource{clusterConfigs.Resource(), peerConfigs.Resource()} {
		ref := k8s.Ref{Resource: definitions, Name: resource.GroupResource().String()}
		crd, err := c.Client.Get(ctx, ref)
		if apierrors.IsForbidden(err) || k8s.IsNotFound(err, ref) {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading %s: %w", ref, err)
		}
		c.conditions[resource.Resource] = hasStatus(crd, api.Versions(resource.GroupResource()))
	}
	return nil
}

// hasStatus reports whether a definition has the subresource status in the first of the versions that it serves.
func hasStatus(crd *unstructured.Unstructured, versions []string) bool {
	defined, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, version := range versions {
		for _, v := range defined {
			if fields, _ := v.(map[string]any); fields["name"] == version && fields["served"] == true {
				_, has, _ := unstructured.NestedMap(fields, "subresources", "status")
				return has
			}
		}
	}
	return false
}

// Why no condition is written.
const (
	noStatus     = "none: the installed definition has no status; Events and health have the problems"
	noPermission = "none: the role does not allow to update the status; Events and health have the problems"
	awaitsRole   = "waits: what the role allows is not known yet"
)

const (
	// roleLimit is how long conditions wait for what the role allows, which is read within milliseconds.
	roleLimit = 10 * time.Second
	// rolePause is between two looks.
	rolePause = 100 * time.Millisecond
)

// cannotReport returns why there are no conditions for a kind; cannot is false where there are.
func (c *controller) cannotReport(of schema.GroupVersionResource) (why reconcile.Result, cannot bool) {
	switch {
	case !c.conditions[of.Resource]:
		return reconcile.Result{Reason: noStatus}, true
	case !c.Permissions.Known() && time.Since(c.began) < roleLimit:
		return reconcile.Result{Reason: awaitsRole, RequeueAfter: rolePause}, true
	case c.Permissions.Denies("update", k8s.Ref{Resource: of, Subresource: "status"}):
		return reconcile.Result{Reason: noPermission}, true
	}
	return reconcile.Result{}, false
}

// reconcileConfig reports what is wrong with a CiliumBGPClusterConfig.
func (c *controller) reconcileConfig(ctx context.Context, name string) (reconcile.Result, error) {
	config, found := c.inspect(name)
	if config == nil || config.deleting() {
		return reconcile.Result{}, nil
	}
	if why, cannot := c.cannotReport(clusterConfigs.Resource()); cannot {
		return why, nil
	}
	if config.problem != "" {
		return reconcile.Result{Reason: ownerHasNoEffect}, nil
	}
	s := conditionsWrite{
		ref:   k8s.Ref{Resource: clusterConfigs.Resource(), Name: name, UID: config.UID.API(), Subresource: "status"},
		types: configConditions, has: config.Status.Conditions, want: found.conditions(configConditions, config.Generation),
	}
	return reconcile.Result{}, c.writeConditions(ctx, s)
}

// inspect returns a CiliumBGPClusterConfig, nil if there is none, and what is wrong with it, and reports that.
func (c *controller) inspect(name string) (*config, findings) {
	c.mu.Lock()
	defer c.mu.Unlock()
	config := c.planner.config(name)
	if config == nil {
		c.report(nil, name, "", nil)
		c.Metrics.Errors.DeleteLabelValues(clusterConfigs.Name(), name)
		return nil, nil
	}
	if config.problem != "" {
		c.report(config, name, config.problem, nil)
		c.Metrics.Errors.WithLabelValues(clusterConfigs.Name(), name).Inc()
		return config, nil
	}
	found := c.planner.configFindings(config, func(peer string) bool {
		_, exists := c.peerConfigs.Get(slim.Key{Name: peer})
		return exists || c.peerConfigs.Hides(slim.Key{Name: peer})
	})
	c.report(config, name, cmp.Or(found[conditionConflict], found[conditionMissingPeer]), found)
	return config, found
}

// eventReason is the reason of the Event about a CiliumBGPClusterConfig. One without findings is not valid.
func eventReason(found findings) string {
	switch {
	case found == nil:
		return "InvalidClusterConfig"
	case found[conditionConflict] != "":
		return "ConflictingClusterConfigs"
	}
	return "MissingPeerConfigs"
}

// report reports a problem of a CiliumBGPClusterConfig in health, and as an Event and in the log when it is new. The caller has
// the lock.
func (c *controller) report(of *config, name, problem string, found findings) {
	key := clusterConfigs.Name() + " " + name
	if c.problems[key] == problem {
		return
	}
	if c.problems[key] = problem; problem == "" {
		delete(c.problems, key)
	} else {
		c.Events.Warning(about(clusterConfigs.Resource().GroupVersion().String(), clusterConfigs.Name(), &of.Meta), eventReason(found), problem)
		c.Log.Warn("CiliumBGPClusterConfig has no effect on some nodes", "clusterConfig", name, "problem", problem)
	}
	if part, text := c.Health.Child("objects"), describe(c.problems); text == "" {
		part.OK("")
	} else {
		part.Degraded(text, nil)
	}
}

// describe is one line about the problems of CiliumBGPClusterConfigs, "" if there are none.
func describe(problems map[string]string) string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(problems)) {
		if strings.HasPrefix(key, clusterConfigs.Name()) {
			all = append(all, key+": "+problems[key])
		}
	}
	if len(all) == 0 {
		return ""
	}
	text := all[0]
	if len(all) > 1 {
		text += fmt.Sprintf("; and %d more", len(all)-1)
	}
	return text
}

// secretsInterval is how often the Secret of a CiliumBGPPeerConfig is looked for: roles allow the operator to get Secrets, and
// not to watch them.
const secretsInterval = time.Minute

// noSecrets is why there is no condition.
const noSecrets = "none: bgp-secrets-namespace is not set, or conditions are switched off"

// reconcilePeer writes the condition of a CiliumBGPPeerConfig whose Secret does not exist.
func (c *controller) reconcilePeer(ctx context.Context, name string) (reconcile.Result, error) {
	peer, exists := c.peerConfigs.Get(slim.Key{Name: name})
	if !exists {
		c.Metrics.Errors.DeleteLabelValues(peerConfigs.Name(), name)
		return reconcile.Result{}, nil
	}
	if why, cannot := c.cannotReport(peerConfigs.Resource()); cannot {
		return why, nil
	}
	s := conditionsWrite{
		ref:   k8s.Ref{Resource: peerConfigs.Resource(), Name: name, UID: peer.UID.API(), Subresource: "status"},
		types: peerConditions, has: peer.Status.Conditions,
	}
	if c.Config.SecretsNamespace == "" || !c.Config.StatusReport {
		return reconcile.Result{Reason: noSecrets}, c.writeConditions(ctx, s)
	}
	found, err := c.peerFindings(ctx, peer)
	if err != nil {
		c.Metrics.Errors.WithLabelValues(peerConfigs.Name(), name).Inc()
		return reconcile.Result{}, err
	}
	s.want = found.conditions(peerConditions, peer.Generation)
	result := reconcile.Result{}
	if peer.Spec.AuthSecretRef != "" {
		result.RequeueAfter = secretsInterval
	}
	return result, c.writeConditions(ctx, s)
}

func (c *controller) peerFindings(ctx context.Context, peer *peerConfig) (findings, error) {
	if peer.Spec.AuthSecretRef == "" {
		return nil, nil
	}
	ref := k8s.Ref{Resource: corev1.SchemeGroupVersion.WithResource("secrets"), Namespace: c.Config.SecretsNamespace, Name: peer.Spec.AuthSecretRef}
	_, err := c.Client.Get(ctx, ref)
	if k8s.IsNotFound(err, ref) {
		return findings{conditionNoSecret: fmt.Sprintf("Referenced Auth Secret %q is missing", ref.Name)}, nil
	}
	return nil, err
}

// conditionsWrite is the conditions of an object.
type conditionsWrite struct {
	ref       k8s.Ref
	types     []string // of this duty
	has, want []condition
}

// conditional is what is written of an object with conditions.
type conditional struct {
	Status struct {
		Conditions []metav1.Condition `json:"conditions,omitempty"`
	} `json:"status,omitzero"`
}

// keepMessages has conditions that tell of no problem keep their messages: those of originals have some.
func (s *conditionsWrite) keepMessages() {
	none := slim.MakeString(string(metav1.ConditionFalse))
	for i, w := range s.want {
		for _, c := range s.has {
			if c.Type == w.Type && c.Status == none && w.Status == none {
				s.want[i].Message = c.Message
			}
		}
	}
}

// writeConditions writes the conditions of an object that has others. Without reports it removes them.
func (c *controller) writeConditions(ctx context.Context, s conditionsWrite) error {
	if !c.Config.StatusReport {
		s.want = nil
	}
	s.keepMessages()
	if slices.Equal(ofTypes(s.has, s.types), s.want) {
		return nil
	}
	now := metav1.NewTime(c.Deps.Plan.Now().UTC().Truncate(time.Second))
	_, err := k8s.Update(ctx, c.Client, s.ref, func(o *conditional) error {
		setConditions(&o.Status.Conditions, s.types, s.want, now)
		return nil
	})
	if k8s.IsNotFound(err, s.ref) {
		return reconcile.Recheck()
	}
	return err
}
