// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package azure

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
)

// credential is what tokens are requested with. Errors name it.
type credential struct {
	azcore.TokenCredential
	source string
	// isSecond is that one that comes before it was asked for, and could not be used. It is asked for again.
	isSecond bool
}

// GetToken implements azcore.TokenCredential.
func (c credential) GetToken(ctx context.Context, options policy.TokenRequestOptions) (azcore.AccessToken, error) {
	t, err := c.TokenCredential.GetToken(ctx, options)
	if err != nil {
		return t, &tokenError{c.source, err}
	}
	return t, nil
}

// tokenError says that there is no token. The SDK does not retry it: the engine does.
type tokenError struct {
	source string
	err    error
}

func (e *tokenError) Error() string {
	text, _, _ := strings.Cut(strings.TrimSpace(e.err.Error()), "\n")
	return fmt.Sprintf("requesting a token with %s: %s", e.source, text)
}

func (e *tokenError) Unwrap() error { return e.err }

// NonRetriable marks the error for the SDK.
func (*tokenError) NonRetriable() {}

// authFile is the file that AZURE_AUTH_LOCATION names.
type authFile struct {
	ClientID                string `json:"clientId"`
	ClientSecret            string `json:"clientSecret"`
	TenantID                string `json:"tenantId"`
	ActiveDirectoryEndpoint string `json:"activeDirectoryEndpointUrl"`
}

// newCredential is the managed identity that the options name; else that of the file that AZURE_AUTH_LOCATION names, if it can
// be used; else that of the environment; else the identity of the machine.
func newCredential(c Config, options policy.ClientOptions) (credential, error) {
	if id := c.AzureUserAssignedIdentityID; id != "" {
		return newManaged(&azidentity.ManagedIdentityCredentialOptions{ClientOptions: options, ID: azidentity.ClientID(id)},
			"the managed identity "+id+" (--azure-user-assigned-identity-id)", false)
	}
	tried := ""
	if path := os.Getenv("AZURE_AUTH_LOCATION"); path != "" {
		of, err := fromFile(path, options)
		if err == nil {
			return credential{of, "the file " + path + " (AZURE_AUTH_LOCATION)", false}, nil
		}
		tried = fmt.Sprintf("; AZURE_AUTH_LOCATION was not used: %v", err)
	}
	if os.Getenv("AZURE_FEDERATED_TOKEN_FILE") != "" {
		of, err := azidentity.NewWorkloadIdentityCredential(&azidentity.WorkloadIdentityCredentialOptions{ClientOptions: options})
		if err == nil {
			return credential{of, "the workload identity of AZURE_FEDERATED_TOKEN_FILE" + tried, tried != ""}, nil
		}
		tried += fmt.Sprintf("; AZURE_FEDERATED_TOKEN_FILE was not used: %v", err)
	}
	if os.Getenv("AZURE_CLIENT_ID") != "" && os.Getenv("AZURE_TENANT_ID") != "" {
		of, err := azidentity.NewEnvironmentCredential(&azidentity.EnvironmentCredentialOptions{ClientOptions: options})
		if err == nil {
			return credential{of, "the client " + os.Getenv("AZURE_CLIENT_ID") + " of the environment (AZURE_CLIENT_ID)" + tried, tried != ""}, nil
		}
		tried += fmt.Sprintf("; AZURE_CLIENT_ID was not used: %v", err)
	}
	return newManaged(&azidentity.ManagedIdentityCredentialOptions{ClientOptions: options}, "the managed identity of the machine"+tried, tried != "")
}

func newManaged(options *azidentity.ManagedIdentityCredentialOptions, source string, isSecond bool) (credential, error) {
	of, err := azidentity.NewManagedIdentityCredential(options)
	if err != nil {
		return credential{}, fmt.Errorf("using %s: %w", source, err)
	}
	return credential{of, source, isSecond}, nil
}

func fromFile(path string, options policy.ClientOptions) (azcore.TokenCredential, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var file authFile
	if err := json.Unmarshal([]byte(strings.TrimPrefix(string(text), "\ufeff")), &file); err != nil {
		return nil, fmt.Errorf("%s has no JSON: %w", path, err)
	}
	if file.ClientID == "" || file.ClientSecret == "" || file.TenantID == "" {
		return nil, errors.New(path + " lacks clientId, clientSecret or tenantId")
	}
	options.Cloud.ActiveDirectoryAuthorityHost = cmp.Or(file.ActiveDirectoryEndpoint, options.Cloud.ActiveDirectoryAuthorityHost)
	return azidentity.NewClientSecretCredential(file.TenantID, file.ClientID, file.ClientSecret, &azidentity.ClientSecretCredentialOptions{ClientOptions: options})
}
