// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package secretsync

import (
	"cmp"
	"crypto/tls"
	"encoding/base64"
	"maps"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/resources/secretref"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// content is what a copy is to have.
type content struct {
	labels, annotations map[string]string
	secretType          string
	immutable           bool
	isNoDefault         bool           // a mark of the default Secret of Ingresses goes
	data                map[string]any // in base64
}

// authority is the key of a ConfigMap with the certificates of authorities.
const authority = "ca.crt"

// contentOf is what the copy of an object has.
func contentOf(of secretref.Object, u *unstructured.Unstructured) content {
	c := content{labels: map[string]string{}, annotations: map[string]string{}, data: map[string]any{}}
	if of.Kind == secretref.ConfigMap {
		c.secretType = string(corev1.SecretTypeOpaque)
		if text, exists, _ := unstructured.NestedString(u.Object, "data", authority); exists {
			c.data[authority] = base64.StdEncoding.EncodeToString([]byte(text))
		} else if encoded, exists, _ := unstructured.NestedString(u.Object, "binaryData", authority); exists {
			c.data[authority] = encoded
		}
	} else {
		c.secretType, _, _ = unstructured.NestedString(u.Object, "type")
		if c.secretType = cmp.Or(c.secretType, string(corev1.SecretTypeOpaque)); isCredential(c.secretType) {
			c.secretType = string(corev1.SecretTypeOpaque)
		}
		c.immutable, _, _ = unstructured.NestedBool(u.Object, "immutable")
		data, _, _ := unstructured.NestedMap(u.Object, "data")
		maps.Copy(c.data, data)
	}
	copyMap(c.labels, u.GetLabels())
	copyMap(c.annotations, u.GetAnnotations())
	delete(c.annotations, corev1.LastAppliedConfigAnnotation) // it has the data
	c.labels[secretref.NamespaceKey(of.Kind)] = of.Namespace
	c.labels[secretref.NameKey(of.Kind)] = envoy.Shorten(of.Name)
	if envoy.Shorten(of.Name) != of.Name {
		c.annotations[secretref.NameKey(of.Kind)] = of.Name
	}
	return c
}

// markDefault has copies have the mark of the default Secret of Ingresses, or have it no more where it is known that others are that (SEC-23).
func (c *content) markDefault(is, known bool) {
	if is {
		c.annotations[secretref.DefaultKey] = "true"
	}
	c.isNoDefault = known && !is
}

// isCredential reports whether the cluster itself acts on Secrets of a type, by their namespace: it puts the token of an account of that namespace into them,
// or lets nodes in that know what is in them.
func isCredential(secretType string) bool {
	return secretType == string(corev1.SecretTypeServiceAccountToken) || secretType == string(corev1.SecretTypeBootstrapToken)
}

// checkCertificate returns why a Secret for TLS has no certificate with its key. The error has nothing of the key.
func (c content) checkCertificate() error {
	if c.secretType != string(corev1.SecretTypeTLS) {
		return nil
	}
	part := func(name string) []byte {
		text, _ := c.data[name].(string)
		decoded, _ := base64.StdEncoding.DecodeString(text) // the API server takes no other
		return decoded
	}
	_, err := tls.X509KeyPair(part(corev1.TLSCertKey), part(corev1.TLSPrivateKeyKey))
	return err
}

// copyMap copies labels or annotations, but for those that say whose copy an object is.
func copyMap(to, from map[string]string) {
	for key, value := range from {
		if !strings.HasPrefix(key, secretref.OwnerPrefix) {
			to[key] = value
		}
	}
}

// apply sets what a copy is to have. Labels and annotations of others stay.
func (c content) apply(u *unstructured.Unstructured) {
	if labels := u.GetLabels(); !contains(labels, c.labels) {
		u.SetLabels(merged(labels, c.labels))
	}
	if annotations := u.GetAnnotations(); !contains(annotations, c.annotations) {
		u.SetAnnotations(merged(annotations, c.annotations))
	}
	if annotations := u.GetAnnotations(); c.isNoDefault && annotations[secretref.DefaultKey] != "" {
		delete(annotations, secretref.DefaultKey)
		u.SetAnnotations(annotations)
	}
	u.Object["type"] = c.secretType
	if immutable, _, _ := unstructured.NestedBool(u.Object, "immutable"); immutable != c.immutable {
		u.Object["immutable"] = c.immutable
	}
	if !c.hasData(u) {
		u.Object["data"] = maps.Clone(c.data)
	}
}

// isIn reports whether a copy has the content.
func (c content) isIn(u *unstructured.Unstructured) bool {
	changed := u.DeepCopy()
	c.apply(changed)
	return reflect.DeepEqual(u.Object, changed.Object)
}

func (c content) hasData(u *unstructured.Unstructured) bool {
	data, _, _ := unstructured.NestedMap(u.Object, "data")
	return len(data) == 0 && len(c.data) == 0 || reflect.DeepEqual(data, c.data)
}

// replaces reports whether a copy cannot be updated to the content: the API server refuses to change a type, and what is
// immutable.
func (c content) replaces(u *unstructured.Unstructured) bool {
	is, _, _ := unstructured.NestedString(u.Object, "type")
	immutable, _, _ := unstructured.NestedBool(u.Object, "immutable")
	return is != c.secretType || immutable && (!c.immutable || !c.hasData(u))
}

func contains(all, part map[string]string) bool {
	for key, value := range part {
		if has, exists := all[key]; !exists || has != value {
			return false
		}
	}
	return true
}

func merged(all, part map[string]string) map[string]string {
	both := maps.Clone(all)
	if both == nil {
		both = map[string]string{}
	}
	maps.Copy(both, part)
	return both
}

// ownerOfFull is what a Secret is a copy of, as the API server has it.
func ownerOfFull(u *unstructured.Unstructured) (of secretref.Object, isCopy bool) {
	labels, annotations := u.GetLabels(), u.GetAnnotations()
	return secretref.OwnerOf(func(key string) string { return labels[key] }, func(key string) string { return annotations[key] })
}

// keyOf is the key of an object in the work queue. That of a ConfigMap has a character that names do not have, but that what refers to a Secret may have.
func keyOf(of secretref.Object) slim.Key {
	switch {
	case of.Kind == secretref.ConfigMap:
		return slim.Key{Namespace: of.Namespace, Name: configMapPrefix + of.Name}
	case strings.Contains(of.Name, "/"): // no Secret has that name: who refers to it is to know
		return slim.Key{Namespace: of.Namespace, Name: secretPrefix + of.Name}
	}
	return of.Key
}

const (
	configMapPrefix = "configmap/"
	secretPrefix    = "secret/"
)

func objectOf(key slim.Key) secretref.Object {
	if name, isConfigMap := strings.CutPrefix(key.Name, configMapPrefix); isConfigMap {
		return secretref.Object{Kind: secretref.ConfigMap, Key: slim.Key{Namespace: key.Namespace, Name: name}}
	}
	key.Name = strings.TrimPrefix(key.Name, secretPrefix)
	return secretref.Object{Kind: secretref.Secret, Key: key}
}

func compareObjects(a, b secretref.Object) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

func compareReferences(a, b reference) int {
	return cmp.Or(cmp.Compare(a.source, b.source), cmp.Compare(a.from.Kind, b.from.Kind),
		cmp.Compare(a.from.Namespace, b.from.Namespace), cmp.Compare(a.from.Name, b.from.Name))
}
