// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package secretsync

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/secretref"
)

// read is the content for the copies of an object, nil if it does not exist.
func (c *controller) read(ctx context.Context, of secretref.Object) (*content, error) {
	ref := k8s.Ref{Resource: secrets.Resource(), Namespace: of.Namespace, Name: of.Name}
	if of.Kind == secretref.ConfigMap {
		ref.Resource = configMaps.Resource()
	}
	u, err := c.Client.Get(ctx, ref)
	_, shown := c.secrets.Get(of.Key)
	switch {
	case k8s.IsNotFound(err, ref) && of.Kind == secretref.Secret && shown: // its deletion is to come
		return nil, reconcile.Recheck()
	case k8s.IsNotFound(err, ref):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading %s: %w", of, err)
	}
	found := contentOf(of, u)
	found.markDefault(c.Names.IsDefault(of))
	return &found, nil
}

// takenRetry is how often it is looked whether the name of a copy is free.
const takenRetry = time.Minute

// writeAll writes the copies that are needed, each in its place.
func (c *controller) writeAll(ctx context.Context, of secretref.Object, needed map[place][]reference, want content) (reconcile.Result, error) {
	var errs []error
	var result reconcile.Result
	state := stateCopied
	for _, at := range slices.SortedFunc(maps.Keys(needed), comparePlaces) {
		err := c.write(ctx, of, at, want)
		taken := new(takenError)
		switch {
		case errors.As(err, &taken):
			result.Reason, result.RequeueAfter, state = isTaken, takenRetry, stateConflict
			c.reports.set(of, needed[at], notCopied(taken))
		case err != nil:
			errs = append(errs, inNamespace(at.namespace, err))
		default:
			c.reportCopied(of, needed[at], want)
		}
	}
	if len(needed) > 0 && (len(errs) == 0 || state == stateConflict) {
		c.states.Set(keyOf(of), state)
	}
	return result, errors.Join(errs...)
}

// reportCopied takes back what was said of references before. A network policy that uses what is of another namespace is told so, and all
// are told of a certificate that Envoy does not take.
func (c *controller) reportCopied(of secretref.Object, all []reference, has content) {
	var unfit []envoy.Notice
	if err := has.checkCertificate(); err != nil {
		unfit = append(unfit, notValid(of, err))
	}
	for _, ref := range all {
		notices := unfit
		if c.borrows(ref, of) {
			notices = append(slices.Clone(unfit), borrowed(of))
		}
		c.reports.set(of, []reference{ref}, notices...)
	}
}

func comparePlaces(a, b place) int {
	return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
}

// inNamespace names the namespace of an error. One that the role lacks a permission holds for all namespaces, and a Role may be
// given in this one alone: it is retried as others are.
func inNamespace(namespace string, err error) error {
	lacks := new(k8s.PermissionError)
	if errors.As(err, &lacks) {
		return fmt.Errorf("copying to namespace %s: %v: give the operator a Role there that allows it", namespace, lacks.Err)
	}
	return fmt.Errorf("copying to namespace %s: %w", namespace, err)
}

// takenError says that the copy cannot be written, and why.
type takenError struct{ text string }

func (e *takenError) Error() string { return e.text }

// write creates or updates the copy of an object in a place. A Secret that is not the copy is left as it is.
func (c *controller) write(ctx context.Context, of secretref.Object, at place, want content) error {
	if at.name == "" {
		return &takenError{fmt.Sprintf("%s is not copied: the name of its copy, %s/%s, which agents compute for network policies, is that of another object's, or in a CiliumEnvoyConfig that is left, and agents use what has it: rename one of them, or delete that one", of, at.namespace, of.CopyName())}
	}
	ref := k8s.Ref{Resource: secrets.Resource(), Namespace: at.namespace, Name: at.name}
	if problems := validation.NameIsDNSSubdomain(ref.Name, false); len(problems) > 0 {
		return &takenError{fmt.Sprintf("%s cannot be copied: %s cannot be the name of a Secret: %s", of, ref.Name, problems[0])}
	}
	has, err := c.Client.Get(ctx, ref)
	switch {
	case k8s.IsNotFound(err, ref):
		return c.create(ctx, ref, want)
	case err != nil:
		return err
	}
	if err := checkOwner(of, ref, has); err != nil {
		return err
	}
	if has.GetDeletionTimestamp() != nil {
		return reconcile.Recheck()
	}
	if want.isIn(has) {
		return nil
	}
	if want.replaces(has) {
		if err := c.remove(ctx, ref, k8s.Preconditions{UID: has.GetUID(), ResourceVersion: has.GetResourceVersion()}); err != nil {
			return err
		}
		return c.create(ctx, ref, want)
	}
	_, _, err = c.Client.Modify(k8s.WithOneSource(ctx), ref, func(u *unstructured.Unstructured) error {
		if u.GetUID() != has.GetUID() || want.replaces(u) || checkOwner(of, ref, u) != nil {
			return reconcile.Recheck()
		}
		want.apply(u)
		return nil
	})
	if k8s.IsNotFound(err, ref) {
		return reconcile.Recheck()
	}
	return err
}

func (c *controller) create(ctx context.Context, ref k8s.Ref, want content) error {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret"}}
	u.SetNamespace(ref.Namespace)
	u.SetName(ref.Name)
	want.apply(u)
	_, err := c.Client.Create(ctx, ref.Resource, u)
	if k8s.IsAlreadyExists(err, ref) {
		return reconcile.Recheck()
	}
	return err
}

// checkOwner returns a takenError if a Secret is not the copy of an object.
func checkOwner(of secretref.Object, ref k8s.Ref, has *unstructured.Unstructured) error {
	owner, isCopy := ownerOfFull(has)
	switch {
	case !isCopy:
		return &takenError{fmt.Sprintf("%s is not copied: Secret %s/%s exists and is no copy of it: delete or rename that one", of, ref.Namespace, ref.Name)}
	case owner != of:
		return &takenError{fmt.Sprintf("%s is not copied: Secret %s/%s is the copy of %s: rename one of them", of, ref.Namespace, ref.Name, owner)}
	}
	return nil
}

// removeAll deletes copies as the store shows them.
func (c *controller) removeAll(ctx context.Context, copies []*secret) error {
	var errs []error
	for _, s := range copies {
		ref := k8s.Ref{Resource: secrets.Resource(), Namespace: s.Namespace.String(), Name: s.Name}
		err := c.remove(ctx, ref, k8s.Preconditions{UID: s.UID.API(), ResourceVersion: s.ResourceVersion.String()})
		if err != nil {
			errs = append(errs, inNamespace(ref.Namespace, err))
		}
	}
	return errors.Join(errs...)
}

// remove deletes a Secret that is as it was seen, labels included.
func (c *controller) remove(ctx context.Context, ref k8s.Ref, only k8s.Preconditions) error {
	err := c.Client.Delete(ctx, ref, only)
	if k8s.IsNotFound(err, ref) || k8s.IsConflict(err, ref) {
		return reconcile.Recheck()
	}
	return err
}

// reportMissing reports that an object does not exist.
func (c *controller) reportMissing(of secretref.Object, needed map[place][]reference) {
	c.setUnused(of, false, grace)
	if len(needed) == 0 {
		c.states.Set(keyOf(of), "")
		return
	}
	c.states.Set(keyOf(of), stateMissing)
	for _, from := range needed {
		c.reports.set(of, from, missing(of))
	}
}
