// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ingress

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	envoyres "github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/secretref"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell serves Ingresses of the class cilium.
var Cell = cell.Module("ingress", "Serves Ingresses of the class cilium with the Envoy of agents",
	cell.Config(defaultConfig),
	cell.EnabledBy(cell.When("Ingresses are served", []string{"enable-ingress-controller", "kube-proxy-replacement", "enable-node-port"}, envoyres.ServesIngresses)),
	k8s.RBAC(
		k8s.Allow("create,delete", v2.CiliumEnvoyConfigResource.GroupResource()),
		k8s.Allow("create,delete", schema.GroupResource{Resource: "services"}),
		k8s.Allow("get", ingresses.Resource().GroupResource()),
		k8s.Allow("update", schema.GroupResource{Group: ingresses.Resource().Group, Resource: "ingresses/status"}),
	),
	k8s.EventRBAC(),
	envoyres.PlaceholderRBAC,
	cell.Module("secrets", "Reports the TLS secrets of Ingresses, which agents get copies of",
		cell.EnabledBy(cell.When("secrets of Ingresses are copied", secretref.IngressFlags, secretref.OfIngresses)),
		cell.Provide(newSecretSource),
	),

	cell.Metrics(newMetrics),
	stream.Provide(ingresses),
	stream.Provide(classes),
	stream.Provide(services),
	stream.Provide(ownedSlices, stream.OnDemand()),
	stream.Provide(ownedEndpoints, stream.OnDemand()),
	secretref.ProvideLeft[duty](func(c envoyres.Config) string { return c.IngressSecretsNamespace }), secretref.LeftRBAC,
	reconcile.Controller(newController,
		reconcile.Watches(ingresses, (*controller).ingressChanged),
		reconcile.Watches(classes, (*controller).classChanged),
		reconcile.Watches(services, (*controller).serviceChanged),
		reconcile.Watches(envoyres.Objects, (*controller).configChanged),
		reconcile.WatchesOnDemand(ownedSlices, (*controller).slicesOnDemand, (*controller).sliceChanged),
		reconcile.WatchesOnDemand(ownedEndpoints, (*controller).endpointsOnDemand, (*controller).endpointsChanged),
		reconcile.Follows((*controller).followRole),
		reconcile.Writes[*controller](v2.CiliumEnvoyConfigResource),
		reconcile.Writes[*controller](corev1.SchemeGroupVersion.WithResource("services")),
	),
)
