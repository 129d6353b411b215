// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package azure

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

	"github.com/skep-operator/skep/resources/cloudipam"
)

// permissions are what the operator's identity needs for operations.
var permissions = map[string]string{
	opScaleSets:      "Microsoft.Compute/virtualMachineScaleSets/read",
	opScaleSetNICs:   "Microsoft.Compute/virtualMachineScaleSets/networkInterfaces/read",
	opMachineNICs:    "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/networkInterfaces/read",
	opNICs:           "Microsoft.Network/networkInterfaces/read",
	opNetworks:       "Microsoft.Network/virtualNetworks/read",
	opSubnet:         "Microsoft.Network/virtualNetworks/subnets/read",
	opGetMachine:     "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/read",
	opUpdateMachine:  "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/write and Microsoft.Network/virtualNetworks/subnets/join/action; for static-ip-tags Microsoft.Network/publicIPPrefixes/join/action, too",
	opGetNIC:         "Microsoft.Network/networkInterfaces/read",
	opUpdateNIC:      "Microsoft.Network/networkInterfaces/write and Microsoft.Network/virtualNetworks/subnets/join/action; for static-ip-tags Microsoft.Network/publicIPAddresses/join/action, too",
	opPrefixes:       "Microsoft.Network/publicIPPrefixes/read",
	opMachinePublics: "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/networkInterfaces/ipConfigurations/publicIPAddresses/read",
	opGetPublic:      "Microsoft.Network/publicIPAddresses/read",
	opCreatePublic:   "Microsoft.Network/publicIPAddresses/write and Microsoft.Network/publicIPPrefixes/join/action",
	opDeletePublic:   "Microsoft.Network/publicIPAddresses/delete",
}

// changes are what operations that change something do.
var changes = map[string]string{
	opUpdateMachine: "add addresses", opUpdateNIC: "add addresses", opCreatePublic: "create a public address", opDeletePublic: "delete a public address",
}

// describe makes one line of an error of the SDK. What users can remedy is a NodeError, whose text has no ids and times.
func describe(operation string, err error) error {
	answer := new(azcore.ResponseError)
	if err == nil || !errors.As(err, &answer) {
		return err
	}
	refused := &refusal{operation, answer.StatusCode, answer.ErrorCode, messageOf(answer)}
	switch code := answer.ErrorCode; {
	case answer.StatusCode == http.StatusForbidden:
		return &cloudipam.NodeError{Status: code, Text: "the operator's identity lacks a permission on Azure: " + permissions[operation], Err: refused}
	case isPrefixFull(code):
		return &cloudipam.NodeError{Status: code, Text: "the public IP prefix has no free address: Azure answers " + code, Err: refused}
	case strings.Contains(code, "SubnetIsFull"), strings.Contains(code, "SubnetFull"):
		return &cloudipam.NodeError{Status: code, Text: "the subnet is full: Azure answers " + code, Err: refused}
	case strings.Contains(code, "Quota"), strings.Contains(code, "LimitReached"):
		return &cloudipam.NodeError{Status: code, Text: "a quota of the subscription is used up: Azure answers " + code, Err: refused}
	case isChange(operation) && (answer.StatusCode == http.StatusBadRequest || answer.StatusCode == http.StatusOK): // an operation that has failed
		return &cloudipam.NodeError{Status: code, Text: "Azure does not " + changes[operation] + ": " + code, Err: refused}
	}
	return refused
}

func isChange(operation string) bool { return changes[operation] != "" }

// isPrefixFull reports whether a code says that a public IP prefix has no free address.
func isPrefixFull(code string) bool {
	code = strings.ToLower(code)
	return strings.Contains(code, "prefixoutofipaddresses") || strings.Contains(code, "prefixexhausted")
}

// refusal is an answer of Azure that is an error.
type refusal struct {
	operation string
	status    int
	code      string
	message   string
}

func (r *refusal) Error() string {
	text := fmt.Sprintf("%s: %d %s", r.operation, r.status, http.StatusText(r.status))
	if r.code != "" {
		text += ": " + r.code
	}
	switch r.status {
	case http.StatusConflict, http.StatusPreconditionFailed:
		return text + ": it was changed by another writer"
	case http.StatusTooManyRequests:
		return text
	}
	if r.message != "" && isChange(r.operation) { // others are in health, which has no ids and times
		text += ": " + r.message
	}
	return text
}

// messageOf is the first line of the message of an answer.
func messageOf(e *azcore.ResponseError) string {
	if e.RawResponse == nil {
		return ""
	}
	text, err := runtime.Payload(e.RawResponse)
	var body struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if err != nil || json.Unmarshal(text, &body) != nil {
		return ""
	}
	line, _, _ := strings.Cut(strings.TrimSpace(body.Error.Message), "\n")
	return line
}

// statusOf is the HTTP status of a refusal, 0 for other errors.
func statusOf(err error) int {
	of := new(refusal)
	if !errors.As(err, &of) {
		return 0
	}
	return of.status
}

// codeOf is the code of a refusal, "" for other errors.
func codeOf(err error) string {
	of := new(refusal)
	if !errors.As(err, &of) {
		return ""
	}
	return of.code
}

// unlessNotFound is nil for what does not exist.
func unlessNotFound(err error) error {
	if statusOf(err) == http.StatusNotFound {
		return nil
	}
	return err
}
