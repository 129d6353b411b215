// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package v2

// L7Rules says which messages of an application protocol are let through.
// Agents up to 1.19 know all protocols; later ones know HTTP and DNS.
//
// +skep:validation:oneOf=http;kafka;dns;l7proto
type L7Rules struct {
	// HTTP requests that are let through; a request has to meet one of the entries.
	HTTP []HTTPRule `json:"http,omitzero"`
	// Kafka requests that are let through; a request has to meet one of the entries.
	Kafka []KafkaRule `json:"kafka,omitzero"`
	// DNS names that may be asked for.
	DNS []FQDNSelector `json:"dns,omitzero"`
	// Name of another protocol that the proxy can read.
	L7Proto string `json:"l7proto,omitempty"`
	// Messages of that protocol that are let through, by the protocol's own keys.
	L7 []map[string]string `json:"l7,omitzero"`
}

// HTTPRule is met by HTTP requests that meet all of its conditions.
type HTTPRule struct {
	// Regular expression for the path.
	Path string `json:"path,omitempty"`
	// Regular expression for the method.
	Method string `json:"method,omitempty"`
	// Regular expression for the host.
	//
	// +kubebuilder:validation:Format=idn-hostname
	Host string `json:"host,omitempty"`
	// Headers that have to be present, as a name, or a name and a value.
	Headers []string `json:"headers,omitzero"`
	// Headers that have to be present, with what to do when they are not.
	HeaderMatches []HeaderMatch `json:"headerMatches,omitzero"`
}

// HeaderMatch is a header with what to do when it is not as it should be.
type HeaderMatch struct {
	// What to do; the request is dropped when this is empty.
	Mismatch HeaderMismatch `json:"mismatch,omitempty"`
	// Name of the header.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
	// Secret that holds the value.
	Secret *SecretReference `json:"secret,omitempty"`
	// The value, if no secret holds it.
	Value string `json:"value,omitempty"`
}

// HeaderMismatch says what is done about a header that is not as it should be.
//
// +kubebuilder:validation:Enum=LOG;ADD;DELETE;REPLACE
type HeaderMismatch string

// What is done about headers.
const (
	HeaderMismatchLog     HeaderMismatch = "LOG"
	HeaderMismatchAdd     HeaderMismatch = "ADD"
	HeaderMismatchDelete  HeaderMismatch = "DELETE"
	HeaderMismatchReplace HeaderMismatch = "REPLACE"
)

// KafkaRule is met by Kafka requests that meet all of its conditions.
type KafkaRule struct {
	// Set of request types: those of a producer or those of a consumer.
	//
	// +kubebuilder:validation:Enum=produce;consume
	Role string `json:"role,omitempty"`
	// Name or number of one request type.
	APIKey string `json:"apiKey,omitempty"`
	// Version of the request.
	APIVersion string `json:"apiVersion,omitempty"`
	// Name that the client gives itself.
	ClientID string `json:"clientID,omitempty"`
	// Topic of the request.
	//
	// +kubebuilder:validation:MaxLength=255
	Topic string `json:"topic,omitempty"`
}
