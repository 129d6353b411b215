// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ingress

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/domain/envoy"
	envoyres "github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// options are those of a translation for a Service.
func (c *controller) options(of slim.Key) envoy.Options {
	connections := c.Envoy.Connections(c.Cluster)
	connections.Forwarded = !c.Config.IngressUseRemoteAddress
	return envoy.Options{
		Service: nameOf(of), SecretsNamespace: c.Envoy.IngressSecretsNamespace, Copies: c.copies, OneLabelWildcards: true,
		ProxyProtocol: c.Config.EnableIngressProxyProtocol, XFFNumTrustedHops: c.Config.IngressDefaultXFFTrusted,
		HostNetwork: c.Config.hostNetwork(c.Cluster), HostsOfTCP: release.HostsOfTCP.In(c.Cluster.Release), Connections: connections, Checked: true, MostProgram: int64(c.Envoy.MaxRegexProgramSize),
	}
}

// labelsLater reports whether agents do without the label of the source address.
func (c *controller) labelsLater() bool { return !release.SourceAddressLabels.In(c.Cluster.Release) }

// sharedOptions are those of the translation that all Ingresses share.
func (c *controller) sharedOptions() envoy.Options {
	o := c.options(c.sharedService())
	o.Owners = !c.Config.IngressJoinNamespaces
	if release.SharedHTTPSPort.In(c.Cluster.Release) {
		o.AlsoPort = int(loadBalancerPorts.https)
	}
	return o
}

// ingest turns an Ingress into listeners and routes.
func (c *controller) ingest(i *ingress, s settings) ingested {
	s.mostProgram = int64(c.Envoy.MaxRegexProgramSize)
	p := c.Config.sharedPorts()
	if !s.shared && c.Config.IngressHostNetworkEnabled {
		p = ports{s.hostPort, s.hostPort, s.hostPort}
	}
	secret, _ := c.Envoy.DefaultSecret()
	return ingest(i, s, p, secret, c.find)
}

// reconcileDedicated writes the load balancer of an Ingress: its Service, its CiliumEnvoyConfig, its placeholder.
func (c *controller) reconcileDedicated(ctx context.Context, i *ingress, s settings, placed *envoyres.Placed[duty]) (reconcile.Result, error) {
	key := i.Key()
	if problems := validation.IsDNS1035Label(serviceKey(key).Name); len(problems) > 0 {
		text := fmt.Sprintf("the Ingress has no load balancer: %s cannot be the name of a Service: %s", serviceKey(key).Name, strings.Join(problems, ", "))
		c.reports.Set(dedicatedMode, aboutIngress(i), envoyres.Notice{Reason: "InvalidName", Message: text, Degrades: true})
		return reconcile.Result{Reason: isUnnamed}, nil
	}
	if text := c.hostPortProblem(i, s); text != "" {
		c.conflicts.Set(key, 1, key.String())
		c.reports.Set(dedicatedMode, aboutIngress(i), envoyres.Notice{Reason: "HostPortOfAnother", Message: "the Ingress is not served: " + text})
		return reconcile.Result{Reason: noPort}, c.removeDedicated(ctx, i, placed)
	}
	c.conflicts.Set(key, 0, "")
	if i.IsCut() { // what there is of its load balancer stays
		c.reports.Set(dedicatedMode, aboutIngress(i), tooLarge(i.CutError()))
		return reconcile.Result{Reason: isLarge}, nil
	}
	in, t, spec, err := c.translateDedicated(ctx, i, s)
	notices := slices.Concat(s.notices, in.notices, noticesOf(t.Problems)[nameOf(key)], c.hostPortAskedFor(i, s))
	if err == nil && t.Empty {
		c.reports.Set(dedicatedMode, aboutIngress(i), append(notices, envoyres.Notice{Reason: "NothingToServe", Message: "the Ingress has no rule or backend that can be served"})...)
		return reconcile.Result{Reason: isEmpty}, c.removeDedicated(ctx, i, placed)
	}
	if err == nil {
		err = c.writeDedicated(ctx, i, s, in, spec, placed)
	}
	if envoyres.ConcernsUser(err) {
		c.reports.Set(dedicatedMode, aboutIngress(i), append(notices, envoyres.Notice{Reason: "NotWritten", Message: err.Error(), Degrades: true})...)
		return reconcile.Result{Reason: isRefused}, nil
	}
	if err != nil {
		if apierrors.IsInvalid(err) { // such as a port of the nodes that is another Service's, and may be free again
			c.reports.Set(dedicatedMode, aboutIngress(i), append(notices, envoyres.Notice{Reason: "NotWritten", Message: err.Error(), Degrades: true})...)
		}
		return reconcile.Result{}, err
	}
	c.reports.Set(dedicatedMode, aboutIngress(i), notices...)
	return reconcile.Result{}, c.writeStatus(ctx, i, serviceKey(key))
}

// translateDedicated translates an Ingress with a load balancer of its own. What needs much memory has the turn of large objects meanwhile, and no longer: requests
// have turns of their own (K8S-26).
func (c *controller) translateDedicated(ctx context.Context, i *ingress, s settings) (in ingested, t envoy.Translation, spec envoy.Encoded, err error) {
	ctx, release := k8s.WithTurn(ctx)
	defer release()
	if err := k8s.AwaitTurn(ctx, slim.SizeOf(i)); err != nil {
		return in, t, spec, err
	}
	in = c.ingest(i, s)
	if t, err = new(envoy.Translator).Translate(in.model, awaiting(ctx, c.options(serviceKey(i.Key())))); err == nil && !t.Empty {
		spec, err = envoy.Encode(t.Spec)
	}
	return in, t, spec, err
}

// finding is a notice about an Ingress.
type finding struct {
	of envoy.Name
	envoyres.Notice
}

// noticesOf are the problems of a translation by Ingress.
func noticesOf(all []envoy.Problem) map[envoy.Name][]envoyres.Notice {
	found, losers := map[envoy.Name][]envoyres.Notice{}, map[envoy.Name][]envoy.Name{}
	seen := map[finding]bool{}
	for _, p := range all {
		n := envoyres.Notice{Reason: "NotTranslated", Message: p.Message}
		if p.Owner != (envoy.Name{}) {
			n = envoyres.Notice{Reason: "HostOfAnother", Message: p.Message}
			losers[p.Owner] = append(losers[p.Owner], p.Source)
		}
		if one := (finding{p.Source, n}); !seen[one] {
			seen[one] = true
			found[p.Source] = append(found[p.Source], n)
		}
	}
	for owner, of := range losers {
		found[owner] = append(found[owner], askedFor(of, "what this one has of its hosts"))
	}
	return found
}

// askedFor tells the user of an Ingress which others ask for what it has.
func askedFor(by []envoy.Name, what string) envoyres.Notice {
	slices.SortFunc(by, func(a, b envoy.Name) int { return strings.Compare(a.String(), b.String()) })
	by = slices.Compact(by)
	text := fmt.Sprintf("the Ingress %s asks for", by[0])
	if len(by) > 1 {
		text = fmt.Sprintf("the Ingress %s and %d more ask for", by[0], len(by)-1)
	}
	return envoyres.Notice{Reason: "HostOfThis", Message: text + " " + what + ", and does not get it: this one is older", ByOthers: true}
}

func (c *controller) writeDedicated(ctx context.Context, i *ingress, s settings, in ingested, spec envoy.Encoded, placed *envoyres.Placed[duty]) error {
	ctx = k8s.WithOneSource(ctx)
	key, owner := i.Key(), ownerOf(i, false)
	labels := inherited(i.Labels, c.Config.IngressLBAnnotationPrefixes)
	annotations := inherited(i.Annotations.Labels, c.Config.IngressLBAnnotationPrefixes)
	err := envoyres.WriteObject(ctx, c.Client, envoyres.OwnedObject[corev1.Service]{
		Resource: services.Resource(), Kind: "Service", Key: serviceKey(key), Owner: owner, Label: ingressLabel,
		Edit: func(to *corev1.Service, isNew bool) {
			envoyres.AddMeta(to, map[string]string{ingressLabel: "true"}, nil)
			envoyres.CopyMeta(to, isNew, envoyres.Meta{Labels: labels, Annotations: annotations}, envoyres.Meta{})
			envoyres.SetFamilies(to, isNew, c.Cluster)
			setService(to, s, c.Config.IngressHostNetworkEnabled, in.model, isNew)
		},
	}, envoyres.Cached(c.services, serviceKey(key)))
	if err != nil && !c.hasLostPort(i, s.hostPort) { // which others may wait for: it is given up all the same
		return err
	}
	ofService := err
	_, err = configNames(key).Write(ctx, c.Client, c.configs, envoyres.Desired{
		Owner: ownerOf(i, true), NodeSourceAddress: true, LabelLater: c.labelsLater(), Spec: spec,
	}, c.Cluster.Release)
	switch {
	case envoyres.IsTerminating(err):
		return ofService
	case err != nil:
		return err
	case ofService != nil:
		return ofService
	}
	return placed.Write(ctx, c.Client, envoyres.Placeholder{
		Service: serviceKey(key), Owner: owner, Label: ingressLabel, Labels: map[string]string{ingressLabel: "true"},
	})
}

// removeDedicated deletes what an Ingress has of a load balancer of its own.
func (c *controller) removeDedicated(ctx context.Context, i *ingress, placed *envoyres.Placed[duty]) error {
	key := i.Key()
	errs := []error{configNames(key).Delete(ctx, c.Client, c.configs, ownerOf(i, true))}
	if s, exists := c.services.Get(serviceKey(key)); exists && isOwner(i, s.Controller) {
		errs = append(errs, k8s.Delete(ctx, c.Client, refOf(services.Resource(), &s.Meta)))
	}
	return errors.Join(append(errs, placed.Remove(ctx, c.Client, serviceKey(key), i.UID.API()))...)
}

func refOf(resource schema.GroupVersionResource, m *slim.Meta) k8s.Ref {
	return k8s.Ref{Resource: resource, Namespace: m.Namespace.String(), Name: m.Name, UID: m.UID.API()}
}

// equalStatus compares addresses.
func equalStatus(a, b []networkingv1.IngressLoadBalancerIngress) bool {
	return slices.EqualFunc(a, b, func(x, y networkingv1.IngressLoadBalancerIngress) bool {
		return x.IP == y.IP && x.Hostname == y.Hostname && slices.EqualFunc(x.Ports, y.Ports, func(p, q networkingv1.IngressPortStatus) bool {
			return p.Port == q.Port && p.Protocol == q.Protocol && (p.Error == nil) == (q.Error == nil) && (p.Error == nil || *p.Error == *q.Error)
		})
	})
}

// sortedKeys are the keys of Ingresses in their order.
func sortedKeys[V any](all map[slim.Key]V) []slim.Key {
	return slices.SortedFunc(maps.Keys(all), func(a, b slim.Key) int { return strings.Compare(a.String(), b.String()) })
}
