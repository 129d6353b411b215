// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clusterpool

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/runtime/job"
)

var status = schema.GroupResource{Group: v2.GroupName, Resource: "ciliumnodes/status"}

// writers is how many nodes are written at once.
const writers = 16

func (s *syncer) write() job.Job { return s.loop.Job() }

// want is what a node should say now, if that differs from what it says.
func (s *syncer) want(name string) (o observed, d desired, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Alloc.content(name) {
		return o, d, false
	}
	d, ok = s.Alloc.desired(name)
	return s.Alloc.nodes[name].observed, d, ok
}

// writeNode writes the difference: CIDRs first, then the error text.
func (s *syncer) writeNode(ctx context.Context, name string) error {
	o, d, ok := s.want(name)
	if !ok || ctx.Err() != nil {
		return ctx.Err()
	}
	ref := k8s.Ref{Resource: v2.CiliumNodeResource, Name: name}
	if d.PodCIDRs != nil {
		if _, err := s.modify(ctx, ref, o, func(u *unstructured.Unstructured) error { return setPodCIDRs(u, o.PodCIDRs, d.PodCIDRs) }); err != nil {
			return err
		}
	}
	if d.Error != o.Error {
		ref.Subresource = "status"
		written, err := s.modify(ctx, ref, o, func(u *unstructured.Unstructured) error { return setError(u, d.Error) })
		if err != nil {
			return err
		}
		if written {
			s.warn(o, d.Error)
		}
	}
	return nil
}

// warn tells people who describe a node why it has no CIDRs, once it says so itself.
func (s *syncer) warn(o observed, text string) {
	if text != "" {
		node := corev1.ObjectReference{APIVersion: v2.SchemeGroupVersion.String(), Kind: "CiliumNode", Name: o.Name, UID: types.UID(o.UID)}
		s.Events.Warn(node, eventReason(text), text)
	}
}

// modify changes a node that is still the one observed. One that is gone is not
// missed: its deletion is on its way.
func (s *syncer) modify(ctx context.Context, ref k8s.Ref, o observed, edit func(*unstructured.Unstructured) error) (written bool, err error) {
	_, written, err = s.Client.Modify(ctx, ref, func(u *unstructured.Unstructured) error {
		if string(u.GetUID()) != o.UID || u.GetDeletionTimestamp() != nil {
			return nil
		}
		return edit(u)
	})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	s.Metrics.wrote(written, err)
	return written, err
}

// setPodCIDRs gives a node its CIDRs, unless it has got others meanwhile: then
// there is something to decide anew, and the change is on its way.
func setPodCIDRs(u *unstructured.Unstructured, from, to []string) error {
	has, _, err := unstructured.NestedStringSlice(u.Object, "spec", "ipam", "podCIDRs")
	if err != nil {
		return err
	}
	if !slices.Equal(has, from) {
		return nil
	}
	return unstructured.SetNestedStringSlice(u.Object, to, "spec", "ipam", "podCIDRs")
}

func setError(u *unstructured.Unstructured, text string) error {
	if text == "" {
		unstructured.RemoveNestedField(u.Object, "status", "ipam", "operator-status", "error")
		return nil
	}
	return unstructured.SetNestedField(u.Object, text, "status", "ipam", "operator-status", "error")
}
