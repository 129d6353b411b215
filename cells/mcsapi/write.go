// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package mcsapi

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
)

func (s *state) importRef() k8s.Ref {
	ref := k8s.Ref{Resource: imports.Resource(), Namespace: s.key.Namespace, Name: s.key.Name}
	if s.imported != nil {
		ref.UID = s.imported.UID.API()
	}
	return ref
}

func (s *state) derivedRef() k8s.Ref {
	key := derivedKey(s.key)
	ref := k8s.Ref{Resource: services.Resource(), Namespace: key.Namespace, Name: key.Name}
	if s.derived != nil {
		ref.UID = s.derived.UID.API()
	}
	return ref
}

// about is the object that Events about a name are for: the ServiceImport, or else the ServiceExport.
func (s *state) about() corev1.ObjectReference {
	o := corev1.ObjectReference{Namespace: s.key.Namespace, Name: s.key.Name}
	switch {
	case s.imported != nil:
		o.APIVersion, o.Kind, o.UID = servedVersion(s.imported.APIVersion), mcsv1alpha1.ServiceImportKindName, s.imported.UID.API()
	case s.export != nil:
		o.APIVersion, o.Kind, o.UID = servedVersion(s.export.APIVersion), mcsv1alpha1.ServiceExportKindName, s.export.UID.API()
	}
	return o
}

// createImport creates a ServiceImport of exports.
func (c *controller) createImport(ctx context.Context, s *state, p importPlan) error {
	labels, annotations := p.metadata(nil, map[string]string{madeHere: "true"})
	_, err := k8s.Create(ctx, c.Client, imports.Resource(), &mcsv1alpha1.ServiceImport{
		TypeMeta: metav1.TypeMeta{APIVersion: imports.Resource().GroupVersion().String(), Kind: mcsv1alpha1.ServiceImportKindName},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.key.Namespace, Name: s.key.Name,
			Labels: labels, Annotations: annotations,
		},
		Spec: *p.spec,
	})
	if k8s.IsAlreadyExists(err, s.importRef()) {
		return reconcile.Recheck()
	}
	return err
}

// deleteImport deletes a ServiceImport that is as it was seen: its user may have taken it over meanwhile.
func (c *controller) deleteImport(ctx context.Context, s *state) error {
	ref := s.importRef()
	err := c.Client.Delete(ctx, ref, k8s.Preconditions{UID: ref.UID, ResourceVersion: s.imported.ResourceVersion.String()})
	if k8s.IsNotFound(err, ref) || k8s.IsConflict(err, ref) {
		return reconcile.Recheck()
	}
	return err
}

// bringDerived brings the derived Service to its desired state. refused is why it cannot be written, where a user has to act.
// It does not go on after it has created or deleted it.
func (c *controller) bringDerived(ctx context.Context, s *state, p importPlan) (refused refusal, goesOn bool, err error) {
	want, verb := s.desired(p.spec), keep
	switch {
	case s.isOwned():
		verb = s.planDerived(want)
		err = c.writeDerived(ctx, s, verb, want)
		if apierrors.IsInvalid(err) {
			refused, err = refusal{refusalReason(err), fmt.Sprintf("the API server does not accept the derived Service %s: %v", derivedKey(s.key).Name, err)}, nil
		}
	case want != nil:
		refused = refusal{failed, fmt.Sprintf("the Service %s exists and is not the derived one: delete it", derivedKey(s.key).Name)}
	}
	if err != nil {
		return refusal{}, false, err
	}
	switch {
	case verb != keep || p.spec == nil || s.isLocal || refused.text != "" || s.imported == nil:
	case len(p.spec.IPFamilies) > 0 && len(s.supported(p.spec)) == 0:
		refused = noFamily(p.spec, "this cluster", s.families)
	case s.derived != nil && !s.servesSome(p.spec):
		refused = noFamily(p.spec, "its Service "+s.derived.Name, s.derived.families())
	}
	c.report(s, refused.text)
	return refused, refused.text != "" || verb == keep || verb == update, nil
}

// writeDerived creates, updates or deletes the derived Service. One whose type changes is created again when it is gone.
func (c *controller) writeDerived(ctx context.Context, s *state, v verb, want *corev1.Service) error {
	ctx, ref := k8s.WithOneSource(ctx), s.derivedRef()
	switch v {
	case create:
		_, err := k8s.Create(ctx, c.Client, services.Resource(), want)
		if k8s.IsAlreadyExists(err, ref) {
			return reconcile.Recheck()
		}
		return err
	case update:
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(want)
		if err != nil {
			return err
		}
		_, _, err = c.Client.Modify(ctx, ref, func(u *unstructured.Unstructured) error {
			u.SetLabels(want.Labels)
			u.SetAnnotations(want.Annotations)
			if !s.isOriginals() {
				u.SetOwnerReferences(want.OwnerReferences)
			}
			fields := []string{"type", "selector", "ports", "sessionAffinity", "sessionAffinityConfig", "internalTrafficPolicy", "trafficDistribution"}
			if want.Spec.IPFamilyPolicy != nil {
				fields = append(fields, "ipFamilyPolicy")
			}
			return replace(u, content, fields...)
		})
		if k8s.IsNotFound(err, ref) {
			return reconcile.Recheck()
		}
		return err
	case recreate, remove:
		return k8s.Delete(ctx, c.Client, ref)
	}
	return nil
}

// replace replaces fields of the spec as a whole, so that none keeps a part of what it was.
func replace(u *unstructured.Unstructured, by map[string]any, fields ...string) error {
	for _, f := range fields {
		value, exists, err := unstructured.NestedFieldCopy(by, "spec", f)
		switch {
		case err != nil:
			return err
		case !exists && f == "sessionAffinityConfig" && isClientIP(by): // the API server's default stays
		case !exists:
			unstructured.RemoveNestedField(u.Object, "spec", f)
		default:
			if err := unstructured.SetNestedField(u.Object, value, "spec", f); err != nil {
				return err
			}
		}
	}
	return nil
}

func isClientIP(service map[string]any) bool {
	affinity, _, _ := unstructured.NestedString(service, "spec", "sessionAffinity")
	return affinity == string(corev1.ServiceAffinityClientIP)
}

// updateImport brings the ServiceImport to its plan, with the name and the addresses of the derived Service.
func (c *controller) updateImport(ctx context.Context, s *state, p importPlan) error {
	has, derived := s.imported, derivedKey(s.key).Name
	want := *has.Spec.DeepCopy()
	if s.followsExports() && p.spec != nil {
		want = *p.spec.DeepCopy()
	}
	if want.IPs = s.addresses(p.spec); !s.isOwned() || s.desired(p.spec) == nil {
		want.IPs, derived = nil, ""
	}
	metadata := func(labels, annotations map[string]string) (wantLabels, wantAnnotations map[string]string) {
		if p.follows {
			labels, annotations = p.metadata(labels, annotations)
		}
		annotations = withDerived(annotations, derived)
		if _, says := annotations[supportedFamilies]; says && p.spec != nil {
			annotations[supportedFamilies] = join(s.supported(p.spec))
		}
		if derived != "" && !s.followsExports() && release.ImportsFollowExports.In(s.release) {
			annotations[madeHere] = ofUser // the name of the derived Service is the sign of an original's, too
		}
		if _, says := annotations[supportedFamilies]; derived == "" && !says && s.isLeft() {
			annotations[madeHere] = "true" // it has lost the sign of its original
		}
		return labels, annotations
	}
	labels, annotations := metadata(has.Labels.Map(), has.Annotations.Map())
	if equalSpecs(has.Spec, want) && slices.Equal(has.Spec.IPs, want.IPs) && maps.Equal(has.Labels.Map(), labels) && maps.Equal(has.Annotations.Map(), annotations) {
		return nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&mcsv1alpha1.ServiceImport{Spec: want})
	if err != nil {
		return err
	}
	fields := []string{"ips"}
	if !equalSpecs(has.Spec, want) {
		fields = append(fields, "ports", "type", "sessionAffinity", "sessionAffinityConfig", "ipFamilies", "internalTrafficPolicy", "trafficDistribution")
	}
	ref := s.importRef()
	_, _, err = c.Client.Modify(k8s.WithOneSource(ctx), ref, func(u *unstructured.Unstructured) error {
		labels, annotations := metadata(u.GetLabels(), u.GetAnnotations())
		u.SetLabels(labels)
		u.SetAnnotations(annotations)
		return replace(u, content, fields...)
	})
	if k8s.IsNotFound(err, ref) {
		return reconcile.Recheck()
	}
	return err
}

// withDerived is annotations with the name of the derived Service, without one if that is empty.
func withDerived(annotations map[string]string, name string) map[string]string {
	want := map[string]string{}
	maps.Copy(want, annotations)
	if want[derivedAnnotation] = name; name == "" {
		delete(want, derivedAnnotation)
	}
	return want
}

func sameImportPort(a, b mcsv1alpha1.ServicePort) bool { return reflect.DeepEqual(a, b) }

func sameConfig(a, b *corev1.SessionAffinityConfig) bool { return reflect.DeepEqual(a, b) }

// updateStatus writes the statuses of the ServiceImport and of the ServiceExport, where the role allows it.
func (c *controller) updateStatus(ctx context.Context, s *state, p importPlan, refused refusal) error {
	if err := s.withoutPermission(c.updateImportStatus(ctx, s, p.merged, refused)); err != nil {
		return err
	}
	if s.export == nil || !s.export.DeletionTimestamp.IsZero() || s.mayBeExported() {
		return nil
	}
	ref := k8s.Ref{Resource: exports.Resource(), Namespace: s.key.Namespace, Name: s.key.Name, UID: s.export.UID.API(), Subresource: "status"}
	want := s.exportConditions(p.merged, refused)
	has := slices.Clone(s.export.Status.Conditions)
	if c.denies(s, "update", ref) || !setConditions(&has, exportConditionTypes, want) {
		return nil
	}
	_, err := k8s.Update(k8s.WithOneSource(ctx), c.Client, ref, func(e *mcsv1alpha1.ServiceExport) error {
		setConditions(&e.Status.Conditions, exportConditionTypes, want)
		return nil
	})
	if k8s.IsNotFound(err, ref) {
		return reconcile.Recheck()
	}
	return err
}

// updateImportStatus writes the clusters and the conditions of the ServiceImport.
func (c *controller) updateImportStatus(ctx context.Context, s *state, m merged, refused refusal) error {
	ref := s.importRef()
	ref.Subresource = "status"
	if s.imported == nil || c.denies(s, "update", ref) {
		return nil
	}
	clusters, conditions := s.clusters(m), s.importConditions(refused)
	has := slices.Clone(s.imported.Status.Conditions)
	if !setConditions(&has, importConditionTypes, conditions) && slices.Equal(s.imported.Status.Clusters, clusters) {
		return nil
	}
	_, err := k8s.Update(k8s.WithOneSource(ctx), c.Client, ref, func(i *mcsv1alpha1.ServiceImport) error {
		i.Status.Clusters = clusters
		setConditions(&i.Status.Conditions, importConditionTypes, conditions)
		return nil
	})
	if k8s.IsNotFound(err, ref) {
		return reconcile.Recheck()
	}
	return err
}
